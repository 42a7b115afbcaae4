import ast
import gc
import re
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import torch_goat
from tests.graphs import small_graph
from torch_goat.nn import GOATConv
from torch_goat.ops.memo import Memo
from torch_goat.ops.neighborhoods import Neighborhoods, neighborhoods


def edges(own_loops: bool = True) -> Tensor:
    """Edges among 9 nodes, with or without self loops among them."""
    edge_index = small_graph(9, 30)
    return edge_index if own_loops else edge_index[:, edge_index[0] != edge_index[1]].contiguous()


def grouped(edge_index: Tensor, loops: bool = True) -> Neighborhoods:
    return neighborhoods(edge_index, (9, 9), loops)


def same(first: Neighborhoods, second: Neighborhoods) -> bool:
    return all(torch.equal(getattr(first, name), getattr(second, name)) for name in ("source", "target", "ptr", "edge"))


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("own_loops", [True, False])
def test_a_graph_is_grouped_once(loops: bool, own_loops: bool) -> None:
    edge_index = edges(own_loops)
    assert grouped(edge_index, loops) is grouped(edge_index, loops)


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("own_loops", [True, False])
@pytest.mark.parametrize(
    "write",
    [
        lambda edge: edge.copy_(edge.flip(0)),
        lambda edge: edge.data.copy_(edge.flip(0)),
        lambda edge: np.copyto(edge.numpy(), edge.flip(0).numpy()),
    ],
    ids=["in place", "through .data", "through NumPy"],
)
def test_changed_edges_are_seen_however_they_changed(
    write: Callable[[Tensor], object], own_loops: bool, loops: bool
) -> None:
    edge_index = edges(own_loops)
    before = grouped(edge_index, loops)
    write(edge_index)
    after = grouped(edge_index, loops)
    assert same(after, grouped(edge_index.clone(), loops))
    assert not same(after, before)


def test_what_is_kept_differs_by_loops_and_sizes() -> None:
    edge_index = edges()
    assert grouped(edge_index, True).source.numel() != grouped(edge_index, False).source.numel()
    assert neighborhoods(edge_index, (12, 12), True).num_targets == 12
    assert grouped(edge_index, True).num_targets == 9


def test_nothing_outlives_the_edges() -> None:
    edge_index = edges()
    kept = [weakref.ref(grouped(edge_index, loops).source) for loops in (True, False)]
    gc.collect()
    assert all(reference() is not None for reference in kept)
    del edge_index
    gc.collect()
    assert all(reference() is None for reference in kept)


def test_inference_mode_leaves_nothing_behind_that_training_cannot_use() -> None:
    edge_index, x = edges(), torch.randn(9, 4)
    conv = GOATConv(4, 6)
    with torch.inference_mode():
        inferred = conv(x, edge_index)
    out = conv(x, edge_index)
    out.sum().backward()
    with torch.inference_mode():
        again = conv(x, edge_index)
    assert torch.equal(inferred, out)
    assert torch.equal(again, out)


def test_training_replays_an_ordering_of_inference_mode() -> None:
    edge_index, x = edges(), torch.randn(9, 4, requires_grad=True)
    conv = GOATConv(4, 6)
    with torch.inference_mode():
        _, ordering = conv(x, edge_index, return_ordering=True)
    (expected,) = torch.autograd.grad(conv(x, edge_index).square().sum(), x)
    (found,) = torch.autograd.grad(conv(x, edge_index, ordering=ordering).square().sum(), x)
    assert torch.equal(found, expected)


def test_an_ordering_that_was_written_to_does_not_spoil_the_next_call() -> None:
    edge_index, x = edges(), torch.randn(9, 4)
    conv = GOATConv(4, 6)
    out, ordering = conv(x, edge_index, return_ordering=True)
    ordering.ptr.zero_()
    assert torch.equal(conv(x, edge_index), out)


@pytest.mark.parametrize("own_loop", [True, False])
def test_edges_that_a_layer_gave_and_somebody_wrote_to_do_not_spoil_the_next_call(own_loop: bool) -> None:
    edge_index, x = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 3 if own_loop else 4]]), torch.randn(5, 4)
    conv = GOATConv(4, 6)
    out, (given, _) = conv(x, edge_index, return_attention_weights=True)
    expected = given.clone()
    given[:, -5:] = 0  # the loops that were appended
    again, (given, _) = conv(x, edge_index, return_attention_weights=True)
    assert torch.equal(given, expected)
    assert torch.equal(again, out)


def test_a_capture_takes_what_was_kept_without_reading_the_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    edge_index = edges()
    hood = grouped(edge_index)
    edge_index.copy_(edge_index.clone())
    assert grouped(edge_index) is hood  # the same edges, written once more
    _capture(monkeypatch)
    monkeypatch.setattr(torch, "equal", lambda *_: pytest.fail("waits for the device"))
    assert grouped(edge_index) is hood
    edge_index.copy_(edge_index.flip(0))
    assert grouped(edge_index) is not hood


def test_a_capture_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    hood = grouped(edges())
    before = hood.by_length
    with monkeypatch.context() as patched:
        _capture(patched)
        assert hood.by_length is before
        during = hood.sizes
    assert hood.sizes is not during
    assert hood.sizes is hood.sizes


def test_a_capture_keeps_what_belongs_to_its_own_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    _capture(monkeypatch)
    memo = Memo(torch.device("cpu"))
    assert memo.compute("key", object) is memo.compute("key", object)


def _capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a CUDA graph was being captured."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)


SOURCES = {path: path.read_text() for path in Path(torch_goat.__file__).parent.rglob("*.py")}


def test_layouts_are_the_only_cache_of_tensors() -> None:
    weak = [path.name for path, text in SOURCES.items() for _ in re.findall(r"= Weak\w*Dictionary\(", text)]
    assert weak == ["neighborhoods.py"]
    functions = [
        node for text in SOURCES.values() for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)
    ]
    cached = [node for node in functions if any("cache" in ast.unparse(how) for how in node.decorator_list)]
    assert cached
    assert not [node.name for node in cached if "Tensor" in ast.unparse(node.args)]


def test_the_package_never_changes_the_default_of_checks() -> None:
    assert [path.name for path, text in SOURCES.items() if re.search(r"\b_default = (?!True)", text)] == ["checks.py"]
    assert not [path.name for path, text in SOURCES.items() if re.search(r"(?<!def )\bset_checks\((?!\))", text)]


def test_a_layer_has_its_own_checks() -> None:
    x, edge_index = torch.full((9, 4), torch.nan), edges()
    conv, other = GOATConv(4, 6), GOATConv(4, 6)
    conv.checks = False
    assert conv(x, edge_index).isnan().any()
    with pytest.raises(ValueError, match="non-finite"):
        other(x, edge_index)
    torch_goat.set_checks(False)
    try:
        other.checks = True
        with pytest.raises(ValueError, match="non-finite"):
            other(x, edge_index)
    finally:
        torch_goat.set_checks(True)
