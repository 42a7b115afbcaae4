from pathlib import Path

import numpy as np
import pytest

from torch_goat import settings
from torch_goat.data.tables import Tables
from torch_goat.experiments import Experiment, TrainingOptions
from torch_goat.experiments.models import ModelOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "^epochs must be .*, got"),
        ({"learning_rate": 0.0}, "^learning_rate must be .*, got"),
        ({"learning_rate": float("nan")}, "^learning_rate must be .*, got"),
        ({"weight_decay": -1.0}, "^weight_decay must be .*, got"),
        ({"patience": -1}, "^patience must be .*, got"),
        ({"clip_norm": float("inf")}, "^clip_norm must be .*, got"),
        ({"epochs": 10, "record_orderings": (11,)}, "^record_orderings must be .*, got"),
        ({"record_orderings": (-1,)}, "^record_orderings must be .*, got"),
        ({"fixed_ordering": -2}, "^fixed_ordering must be .*, got"),
        ({"fixed_ordering": 3, "orderings_files": ("a.safetensors",)}, "cannot be combined"),
        ({"epochs": 2.5}, "epochs must be a whole number, got 2.5"),
        ({"class_weights": "no"}, "class_weights must be true or false, got 'no'"),
        ({"stop_on": "los"}, r"stop_on = 'los' is unknown; did you mean 'loss'\?"),
        ({"precision": "float64"}, "precision = 'float64' is unknown"),
        ({"batch_size": 7, "fanout": (3,)}, r"fanout = \[3\] has 1 numbers, but the model has num_layers = 2"),
        ({"batch_size": 7, "fanout": (3, 0)}, "positive integers, or -1 for all neighbours, got 0"),
        ({"fanout": (3, 2)}, r"fanout = \[3, 2\] needs mini-batches"),
        ({"batch_size": -1}, "batch_size must be at least 0, got -1"),
        ({"batch_size": 7, "fixed_ordering": 2}, "cannot be held fixed"),
        ({"schedule": "linear"}, "schedule = 'linear' is unknown"),
        ({"order_noise_end": -1.0}, "^order_noise_end must be .*, got -1.0"),
        ({"order_noise_end": 0.1}, "order_noise_end = 0.1 needs an order_noise to start from"),
    ],
)
def test_impossible_values_are_refused_by_name(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Experiment("top2", training=TrainingOptions(**options))


@pytest.mark.parametrize(("key", "value"), [("index", -1), ("seed", -1), ("seed", 2**32)])
def test_impossible_experiments_are_refused(key: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"^{key} must be .*, got {value}"):
        Experiment("top2", **{key: value})


@pytest.mark.parametrize("model", [{"given_order": True}, {"order_noise": 0.1}])
def test_an_order_cannot_be_held_and_given_or_learned(model: dict) -> None:
    with pytest.raises(ValueError, match="cannot be combined with an order that is held fixed"):
        Experiment("top2", model=ModelOptions(**model), training=TrainingOptions(fixed_ordering=0))


def test_numbers_lists_and_paths_of_other_kinds_are_plain(tmp_path: Path) -> None:
    plain = Experiment(
        "mine",
        seed=3,
        model=ModelOptions(aggregators=("mean", "max"), name="pna"),
        training=TrainingOptions(learning_rate=0.25, record_orderings=(0, 1)),
        tables=Tables(nodes="nodes.csv", target="y"),
    )
    other = Experiment(
        "mine",
        seed=np.int64(3),
        model=ModelOptions(aggregators=["mean", "max"], name="pna"),
        training=TrainingOptions(learning_rate=np.float64(0.25), record_orderings=[np.int64(0), 1]),
        tables=Tables(nodes=Path("nodes.csv"), target="y"),
    )
    assert other == plain
    assert hash(other) == hash(plain)
    (tmp_path / "config.toml").write_text(settings.dumps(other))
    assert settings.read(Experiment, tmp_path / "config.toml") == plain
    assert type(TrainingOptions(learning_rate=1).learning_rate) is float
