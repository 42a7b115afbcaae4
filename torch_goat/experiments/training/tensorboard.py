from pathlib import Path
from types import TracebackType

from torch_goat.experiments.training.loop import Epoch


class TensorBoard:
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
            raise ImportError(
                "writing for TensorBoard needs its package; install it with: pip install 'torch-goat[tensorboard]'."
            ) from error
        self._open, self._folder = SummaryWriter, str(folder)
        self._writer: SummaryWriter | None = None

    def __call__(self, epoch: Epoch) -> None:
        if self._writer is None:
            self._writer = self._open(self._folder, purge_step=epoch.number)
        for split in ("train", "val"):
            self._writer.add_scalar(f"loss/{split}", getattr(epoch, f"{split}_loss"), epoch.number)
        for split in ("train", "val", "test"):
            self._writer.add_scalar(f"{epoch.metric}/{split}", getattr(epoch, f"{split}_metric"), epoch.number)

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._writer is not None:
            self._writer.close()
