import numpy as np
import pytest
import torch
from sklearn.model_selection import ShuffleSplit

from tests.data.datasets.test_registry import PUBLISHED
from torch_goat.data.datasets.splits import from_file, generated_parts, given, masks, per_class, rows, shuffled_parts

SHARES = {"disease-nc": (0.3, 0.1), "lastfm-asia": (0.6, 0.2)}
SHARES |= dict.fromkeys(("computers", "photo", "cs", "physics"), (0.7, 0.1))


@pytest.mark.parametrize("seed", [0, 9])
@pytest.mark.parametrize("name", SHARES)
def test_random_splits_are_those_of_scikit_learn(name: str, seed: int) -> None:
    (train, val), num_nodes = SHARES[name], PUBLISHED[name][0]
    outer = ShuffleSplit(n_splits=1, train_size=train + val, random_state=seed)
    (first, test) = next(outer.split(np.zeros(num_nodes)))
    inner = ShuffleSplit(n_splits=1, train_size=train / (train + val), random_state=seed)
    (for_train, for_val) = next(inner.split(first))
    parts = shuffled_parts(num_nodes, train, val, seed)
    for part, expected in zip(parts, (first[for_train], first[for_val], test), strict=True):
        assert part.tolist() == expected.tolist()
    assert tuple(map(len, parts)) == PUBLISHED[name][-1]["paper"]


def test_per_class_is_drawn_as_the_study_draws_it() -> None:
    labels = torch.randint(5, (2500,))
    torch.manual_seed(123)  # that study seeds everything, then takes a permutation of every class and one of the rest
    train, rest = [], []
    for label in range(5):
        nodes = [node for node, other in enumerate(labels.tolist()) if other == label]
        order = torch.randperm(len(nodes)).tolist()
        train += [nodes[place] for place in order[:20]]
        rest += [nodes[place] for place in order[20:]]
    rest = [rest[place] for place in torch.randperm(len(rest)).tolist()]
    parts = per_class({"y": labels}, 0, [])
    assert [part.tolist() for part in parts] == [train, rest[:500], rest[500:1500]]
    assert torch.equal(labels[parts[0]].bincount(), torch.full((5,), 20))
    assert per_class({"y": labels}, 1, [])[0].tolist() != train


def test_splits_that_come_with_the_data() -> None:
    single = {"y": torch.zeros(3), "train_mask": torch.tensor([True, False, False])}
    single |= {"val_mask": ~single["train_mask"], "test_mask": torch.tensor([False, False, True])}
    assert [part.tolist() for part in given(single, 0, [])] == [[0], [1, 2], [2]]
    several = {key: torch.stack([value, ~value], dim=1) if key != "y" else value for key, value in single.items()}
    assert [part.tolist() for part in given(several, 1, [])] == [[1, 2], [0], [0, 1]]


def test_rows_and_files(tmp_path) -> None:
    parts = rows(range(2), range(3, 4), range(4, 6))({}, 0, [])
    assert [part.tolist() for part in parts] == [[0, 1], [3], [4, 5]]
    np.savez(tmp_path / "split.npz", train=np.array([4, 1]), valid=np.array([0]), test=np.array([2]))
    assert [part.tolist() for part in from_file({}, 0, [tmp_path / "split.npz"])] == [[4, 1], [0], [2]]


def test_masks_of_generated_graphs_cover_every_node_once() -> None:
    made = masks(generated_parts(50, torch.Generator().manual_seed(0)), 50)
    assert list(made) == ["train_mask", "val_mask", "test_mask"]
    assert [int(mask.sum()) for mask in made.values()] == [30, 10, 10]
    assert torch.stack(list(made.values())).sum(dim=0).tolist() == [1] * 50
