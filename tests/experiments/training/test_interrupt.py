import os
import signal
import subprocess
import sys

from torch_goat.experiments.training.interrupt import deaf

SELF_INTERRUPT = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('still here')"


def test_a_process_that_is_started_deaf_does_not_hear_ctrl_c() -> None:
    command = [sys.executable, "-c", SELF_INTERRUPT]
    with deaf():
        os.kill(os.getpid(), signal.SIGINT)
        child = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert child.stdout == "still here\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "KeyboardInterrupt" in subprocess.run(command, capture_output=True, text=True, timeout=300).stderr
