import pytest

from torch_goat import settings
from torch_goat.training import Experiment, TrainingOptions


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epochs", 0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("weight_decay", -1.0),
        ("patience", -1),
        ("clip_norm", float("inf")),
        ("record_orderings", (11,)),
        ("record_orderings", (-1,)),
        ("fixed_ordering", -2),
    ],
)
def test_impossible_values_are_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{key} = .* is impossible"):
        TrainingOptions(**{"epochs": 10, key: value})


def test_orderings_come_from_one_source() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        TrainingOptions(fixed_ordering=3, orderings_files=("a.safetensors",))


@pytest.mark.parametrize(("key", "value"), [("index", -1), ("seed", -1), ("seed", 2**32)])
def test_impossible_experiments_are_refused(key: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"^{key} = {value} is impossible"):
        Experiment("top2", **{key: value})


def test_an_experiment_survives_toml_and_overrides(tmp_path) -> None:
    experiment = settings.override(
        Experiment("cora", split="paper", seed=7),
        ["heads=4", "epochs=20", "record_orderings=[0, 20]", "stop_on=metric"],
    )
    assert (experiment.model.heads, experiment.training.epochs) == (4, 20)
    (tmp_path / "config.toml").write_text(settings.dumps(experiment))
    assert settings.read(Experiment, tmp_path / "config.toml") == experiment
    with pytest.raises(settings.SettingsError, match=r"did you mean 'patience'\?"):
        settings.override(experiment, ["patients=3"])
