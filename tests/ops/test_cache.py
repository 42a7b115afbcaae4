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
from torch_goat.ops.neighborhoods import Neighborhoods, neighborhoods
from torch_goat.ops.segments import Memo


def edges(own_loops: bool = True) -> Tensor:
    edge_index = small_graph(9, 30)
    return edge_index if own_loops else edge_index[:, edge_index[0] != edge_index[1]].contiguous()


def grouped(edge_index: Tensor, loops: bool = True) -> Neighborhoods:
    return neighborhoods(edge_index, (9, 9), loops)


def same(first: Neighborhoods, second: Neighborhoods) -> bool:
    return all(torch.equal(getattr(first, name), getattr(second, name)) for name in ("source", "target", "ptr", "edge"))


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
def test_a_graph_is_grouped_once_unless_it_changes(
    write: Callable[[Tensor], object], own_loops: bool, loops: bool
) -> None:
    edge_index = edges(own_loops)
    before = grouped(edge_index, loops)
    assert grouped(edge_index, loops) is before
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


@pytest.mark.parametrize("given", ["edge_index", "edge_index of inference mode", "Neighborhoods"])
@pytest.mark.parametrize("options", [{}, {"add_self_loops": False, "attention": "gatv2"}, {"rnn": "mingru"}])
def test_training_can_use_everything_that_inference_mode_leaves_behind(options: dict, given: str) -> None:
    x, conv = torch.randn(9, 4, requires_grad=True), GOATConv(4, 4, **options)
    edge_index: Tensor | Neighborhoods = edges()
    with torch.inference_mode():
        if given == "Neighborhoods":
            edge_index = Neighborhoods.from_edge_index(edge_index, 9, add_self_loops=conv.add_self_loops)
        elif given != "edge_index":
            edge_index = edge_index.clone()
        inferred, ordering = conv(x, edge_index, return_ordering=True)
    outs = [conv(x, edge_index), conv(x, edge_index, ordering=ordering)]
    first, second = (torch.autograd.grad(out.square().sum(), x)[0] for out in outs)
    assert torch.equal(first, second)
    with torch.inference_mode():
        outs += [inferred, conv(x, edge_index)]
    assert all(torch.equal(out, inferred) for out in outs)


def test_inference_mode_groups_a_graph_once() -> None:
    with torch.inference_mode():
        edge_index = edges().clone()
        before = grouped(edge_index)
        assert grouped(edge_index) is before
        edge_index[0, 0] = edge_index[1, 0]  # PyTorch does not count this write
        assert same(grouped(edge_index), grouped(edge_index.clone()))


def test_a_layout_does_not_follow_a_write_to_the_edges() -> None:
    edge_index, x, conv = edges(), torch.randn(9, 4), GOATConv(4, 4, add_self_loops=False)
    hood, expected = Neighborhoods.from_edge_index(edge_index, 9, add_self_loops=False), edge_index.clone()
    edge_index.zero_()
    assert torch.equal(conv(x, hood, return_attention_weights=True)[1][0], expected)


@pytest.mark.parametrize("own_loops", [True, False])
def test_writing_to_the_results_does_not_spoil_the_next_call(own_loops: bool) -> None:
    edge_index, x, conv = edges(own_loops), torch.randn(9, 4), GOATConv(4, 4)
    out, (given, _), ordering = conv(x, edge_index, return_attention_weights=True, return_ordering=True)
    expected = given.clone()
    ordering.ptr.zero_()
    given[:, -9:] = 0  # the self loops that were appended
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


def test_a_capture_takes_no_edges_whose_writes_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.inference_mode():
        edge_index = edges().clone()
        hood = grouped(edge_index)
        _capture(monkeypatch)
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
    """Pretends that a CUDA graph is being captured."""
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
