"""The recipe of "Classic GNNs are strong baselines": the settings of that study, from its authors' commands."""

from dataclasses import replace

import pytest

from torch_goat.experiments.recipes import read_recipe, trials

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


PUBLISHED = {  # of GCN, GraphSAGE and GAT, in the first version of the page beside the study's commands
    "cora": ("85.10 ± 0.67", "83.88 ± 0.65", "84.46 ± 0.55"),
    "citeseer": ("73.14 ± 0.67", "72.26 ± 0.55", "72.22 ± 0.84"),
    "computers": ("93.99 ± 0.12", "93.25 ± 0.14", "94.09 ± 0.37"),
    "photo": ("96.10 ± 0.46", "96.78 ± 0.23", "96.60 ± 0.33"),
    "cs": ("96.17 ± 0.06", "96.38 ± 0.11", "96.21 ± 0.14"),
    "physics": ("97.46 ± 0.10", "97.19 ± 0.18", "97.25 ± 0.06"),
}


@pytest.mark.parametrize("column", PUBLISHED)
def test_the_numbers_beside_ours_are_the_studys(column: str) -> None:
    recipe = read_recipe("tuned")
    found = [recipe.published(row, column) for row in ("gcn", "sage-mean", "gat")]
    assert tuple(number.text for number in found if number) == PUBLISHED[column]
    assert recipe.reference == "study"


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
