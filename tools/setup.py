"""Make a virtual environment that holds the project and all its tools: what `make setup` runs.

Only the standard library, since nothing is installed yet. pip's output goes to a log; one line shows what is going on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time

WANTED = (3, 10)
LOG = "setup.log"


def main(venv: str) -> int:
    """Make `venv`, install into it, stamp it; the exit status."""
    if sys.version_info < WANTED:
        found = ".".join(map(str, sys.version_info[:3]))
        return complain(f"Python {found} is too old, 3.10 is needed; try `make setup PYTHON=python3.12`")
    started = time.monotonic()
    os.makedirs(venv, exist_ok=True)
    python = os.path.join(venv, "bin", "python")
    steps = (
        ("making the virtual environment", [sys.executable, "-m", "venv", venv]),
        ("installing", [python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off",
                        "-c", "constraints.txt", "-e", ".[cuda,deploy,dev]"]),
    )  # fmt: skip
    for what, command in steps:
        if what == "installing" and not os.path.exists(os.path.join(venv, ".ready")):
            what = "installing (PyTorch and JupyterLab are the large ones)"
        if run(what, command, os.path.join(venv, LOG)) != 0:
            return 1
    if not any(shutil.which(c) for c in (os.environ.get("CXX", "c++"), "g++", "clang++")):
        say("note: no C++ compiler found; C++ cells need one (on Debian and Ubuntu: apt-get install g++)")
    with open(os.path.join(venv, ".ready"), "w") as stamp:
        stamp.write(time.strftime("%Y-%m-%d %H:%M:%S\n"))
    say(f"{venv} is ready ({time.monotonic() - started:.0f} s)")
    return 0


def run(what: str, command: list[str], log: str) -> int:
    """Run one step with its output in `log`, showing its seconds; on failure the end of the log and what to do."""
    done = threading.Event()
    ticker = threading.Thread(target=tick, args=(what, log, done), daemon=True)
    with open(log, "w", encoding="utf-8") as out:
        ticker.start()
        try:
            status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
        except KeyboardInterrupt:
            status = 130
        finally:
            done.set()
            ticker.join()
    if status:
        print("".join(tail(log, 15)), file=sys.stderr)
        cure = {130: "interrupted; `make setup` goes on where it stopped"}.get(status, "")
        if "-m venv" in " ".join(command) and not cure:
            cure = "on Debian and Ubuntu: apt-get install python3-venv"
        complain(f"{what} failed ({log} has it all){'; ' + cure if cure else ''}")
    return status


def tick(what: str, log: str, done: threading.Event) -> None:
    """One line that is rewritten every second on a terminal; elsewhere a line at the start and every 30 s."""
    started, live = time.monotonic(), sys.stdout.isatty()
    if not live:
        say(what)
    while not done.wait(1.0 if live else 30.0):
        seconds = time.monotonic() - started
        last = (tail(log, 1) or [""])[0].strip()
        text = f"{what}, {seconds:.0f} s: {last}"
        if live:
            width = shutil.get_terminal_size().columns - 8
            print(f"\r\033[Ksetup: {text[:width]}", end="", flush=True)
        else:
            say(text[:110])
    if live:
        print("\r\033[K", end="")
        say(f"{what}, {time.monotonic() - started:.0f} s")


def tail(path: str, lines: int) -> list[str]:
    with open(path, encoding="utf-8", errors="replace") as log:
        return log.readlines()[-lines:]


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def complain(text: str) -> int:
    print(f"setup: {text}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ".venv"))
