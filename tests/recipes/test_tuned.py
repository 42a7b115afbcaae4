"""The recipe of "Classic GNNs are strong baselines": the settings of that study, from its authors' commands."""

from dataclasses import replace

import pytest

from torch_goat.recipes import read_recipe, trials

STUDY = {  # width, layers, dropout, normalisation, residuals, weight decay; the learning rate is 0.001 everywhere
    ("gcn", "cora"): (512, 3, 0.7, "none", False, 5e-4),
    ("gcn", "citeseer"): (512, 2, 0.5, "none", False, 1e-2),
    ("gcn", "computers"): (512, 3, 0.5, "layer", False, 5e-5),
    ("gcn", "photo"): (256, 6, 0.5, "layer", True, 5e-5),
    ("gcn", "cs"): (512, 2, 0.3, "layer", True, 5e-4),
    ("gcn", "physics"): (64, 2, 0.3, "layer", True, 5e-4),
    ("sage-mean", "cora"): (256, 3, 0.7, "none", False, 5e-4),
    ("sage-mean", "citeseer"): (512, 3, 0.2, "none", False, 1e-2),
    ("sage-mean", "computers"): (64, 4, 0.3, "layer", False, 5e-5),
    ("sage-mean", "photo"): (64, 6, 0.2, "layer", True, 5e-5),
    ("sage-mean", "cs"): (512, 2, 0.5, "layer", True, 5e-4),
    ("sage-mean", "physics"): (64, 2, 0.7, "batch", True, 5e-4),
    ("gat", "cora"): (512, 3, 0.2, "none", True, 5e-4),
    ("gat", "citeseer"): (256, 3, 0.5, "none", True, 1e-2),
    ("gat", "computers"): (64, 2, 0.5, "layer", False, 5e-5),
    ("gat", "photo"): (64, 3, 0.5, "layer", True, 5e-5),
    ("gat", "cs"): (256, 1, 0.3, "layer", True, 5e-4),
    ("gat", "physics"): (256, 2, 0.7, "batch", True, 5e-4),
}


@pytest.mark.parametrize(("row", "column"), STUDY)
def test_a_baselines_first_trial_has_the_studys_settings(row: str, column: str) -> None:
    recipe = read_recipe("tuned")
    recipe = replace(recipe, search=replace(recipe.search, trials=2))
    first, second = trials(recipe, [row], [column])
    model, training = first.experiment.model, first.experiment.training
    width, layers, dropout, norm, residual, decay = STUDY[row, column]
    assert (model.num_layers, model.dropout, model.norm, model.residual) == (layers, dropout, norm, residual)
    assert (training.learning_rate, training.weight_decay) == (0.001, decay)
    assert model.last_channels == width  # the linear output follows a layer as wide as the others
    assert layers == 1 or model.hidden_channels == width
    assert (model.activation, model.heads, model.attention_dropout, first.experiment.split) == ("relu", 1, 0.0, "tuned")
    assert second.experiment != first.experiment


@pytest.mark.parametrize("column", ["cora", "citeseer"])
def test_goats_first_trial_has_what_gcn_has_but_for_the_widths(column: str) -> None:
    recipe = read_recipe("tuned")
    (goat, training), (gcn, expected) = recipe.options("goat", column), recipe.options("gcn", column)
    assert training == expected
    assert goat.last == "gcn"
    for name in ("num_layers", "dropout", "norm", "residual", "activation"):
        assert getattr(goat, name) == getattr(gcn, name)
