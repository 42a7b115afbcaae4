"""Observers that write losses and metrics for TensorBoard, MLflow, and Weights & Biases."""

import importlib.util
import logging
import re
import secrets
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from torch_goat import settings
from torch_goat.experiments.run import RunError
from torch_goat.experiments.training.options import Experiment
from torch_goat.files import no_link, open_regular, replace_file

if TYPE_CHECKING:
    from torch_goat.experiments.training.result import Epoch

PROJECT: Final = "torch-goat"  # the experiment of MLflow and the project of Weights & Biases


class EpochLogger(ABC):
    """An observer that writes the losses and metrics of every epoch to a logger, opened in the first of them.

    Usage: ``with TensorBoard(folder) as board: train(experiment, folder, observer=board)``.
    """

    _logger: Any = None

    def __call__(self, epoch: "Epoch") -> None:
        if self._logger is None:
            self._logger = self._open(epoch.number)
        losses = {f"loss/{split}": getattr(epoch, f"{split}_loss") for split in ("train", "val")}
        metrics = {f"{epoch.metric}/{split}": getattr(epoch, f"{split}_metric") for split in ("train", "val", "test")}
        self._write(losses | metrics, epoch.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._logger is not None:
            self._close(failed=kind is not None)

    @abstractmethod
    def _open(self, first: int) -> Any:
        """The logger of a training that starts, or resumes, with the epoch ``first``."""

    def _write(self, values: dict[str, float], step: int) -> None:
        self._logger.log_metrics(values, step=step)

    def _close(self, failed: bool) -> None:
        self._logger.finalize("failed" if failed else "success")


class TensorBoard(EpochLogger):
    """An observer that writes losses and metrics for TensorBoard.

    Usage: ``with TensorBoard(folder) as board: train(experiment, folder, observer=board)``. Epochs that a resumed run
    repeats replace those written before.

    Args:
        folder: The folder of the event files.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(_missing("TensorBoard", "tensorboard")) from error
        self._writer, self._folder = SummaryWriter, str(folder)

    def _open(self, first: int) -> Any:
        return self._writer(self._folder, purge_step=first)

    def _write(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._logger.add_scalar(name, value, step)

    def _close(self, failed: bool) -> None:
        self._logger.close()


class MLflow(EpochLogger):
    """An observer that logs settings, losses and metrics to MLflow.

    The tracking server or database is MLflow's own setting (``MLFLOW_TRACKING_URI``), by default ``mlflow.db`` in the
    working directory. A resumed run continues its MLflow run, whose id is in the run folder.

    Args:
        experiment: The experiment to train.
        folder: Its run folder.
    """

    def __init__(self, experiment: Experiment, folder: str | Path) -> None:
        _check_installed("MLflow", "mlflow")
        self._experiment, self._folder = experiment, Path(folder)

    def _open(self, first: int) -> Any:
        import mlflow
        from pytorch_lightning.loggers import MLFlowLogger

        logging.getLogger("pytorch_lightning.loggers.mlflow").setLevel(logging.ERROR)
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # the creation of a database
        place = self._folder / "mlflow.id"
        try:
            server, known = mlflow.get_tracking_uri(), _read_id(place)
            if known and not _has_run(mlflow.MlflowClient(server), known):
                known = ""
            logger = MLFlowLogger(PROJECT, self._folder.resolve().name, server, run_id=known or None)
            if not known:
                logger.log_hyperparams(_parameters(self._experiment))
            replace_file(place, str(logger.run_id))
        except Exception as error:
            raise _unusable("MLflow", error, "check MLFLOW_TRACKING_URI or leave out --mlflow") from error
        return logger


class WandB(EpochLogger):
    """An observer that logs settings, losses and metrics to Weights & Biases.

    Its files are in ``wandb`` in the run folder. With ``WANDB_MODE=offline`` nothing is sent until ``wandb sync``.
    A resumed run continues its run at Weights & Biases.

    Args:
        experiment: The experiment to train.
        folder: Its run folder.
    """

    def __init__(self, experiment: Experiment, folder: str | Path) -> None:
        _check_installed("Weights & Biases", "wandb")
        import wandb

        self._settings = wandb.Settings(silent=True, console="off")
        if wandb.setup(self._settings).settings.mode == "online" and not wandb.login(prompt=False):
            raise settings.SettingsError(
                "Weights & Biases has no API key; run wandb login, or set WANDB_MODE=offline to log without an account."
            )
        self._experiment, self._folder = experiment, Path(folder)

    def _open(self, first: int) -> Any:
        from pytorch_lightning.loggers import WandbLogger

        no_link(self._folder / "wandb")
        place = self._folder / "wandb.id"
        try:
            known = _read_id(place) or secrets.token_hex(4)
            name = self._folder.resolve().name
            logger = WandbLogger(
                name, str(self._folder), project=PROJECT, id=known, resume="allow", settings=self._settings
            )
            logger.log_hyperparams(_parameters(self._experiment))
            replace_file(place, known)
        except Exception as error:
            raise _unusable("Weights & Biases", error, "set WANDB_MODE=offline or leave out --wandb") from error
        return logger

    def _close(self, failed: bool) -> None:
        self._logger.experiment.finish(exit_code=int(failed))


def _missing(name: str, extra: str) -> str:
    return f"logging to {name} needs its package; install it with: pip install 'torch-goat[{extra}]'."


def _check_installed(name: str, package: str) -> None:
    if not all(importlib.util.find_spec(one) for one in (package, "pytorch_lightning")):
        raise ImportError(_missing(name, package))


def _unusable(name: str, error: Exception, remedy: str) -> RunError:
    reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
    return RunError(f"{name} cannot be used ({reason}); {remedy}.")


def _has_run(client: Any, run: str) -> bool:
    """Whether MLflow has a run, which may be in another database."""
    from mlflow import MlflowException

    try:
        return client.get_run(run) is not None
    except MlflowException:
        return False


def _read_id(path: Path) -> str:
    """The id of an earlier part of the run; empty if there is none."""
    if not path.exists():
        return ""
    with open_regular(path, most=100) as file:
        text = file.read().decode("ascii", "replace").strip()
    return text if re.fullmatch("[0-9a-f]{8,32}", text) else ""


def _parameters(experiment: Experiment) -> dict[str, Any]:
    return dict(settings.leaves(settings.to_table(experiment)))
