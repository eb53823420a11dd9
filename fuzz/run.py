"""Run the fuzz targets: ``python fuzz/run.py --seconds 60 [--target peer]``.

Makes an environment with atheris in ``.peers/fuzz`` if there is none, starts each target from a
corpus of real conversations (kept in ``.peers/fuzz-corpus``, so that a later run goes on where
the last one stopped), and prints executions, coverage and findings. The status is 1 if anything
was found; the input that does it is named, and ``python fuzz/run.py --replay FILE --target X``
shows it again.
"""

import argparse
import re
import subprocess
import sys
import time
import venv
from pathlib import Path

from seeds import write_dictionary

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".peers" / "fuzz"
CORPUS = ROOT / ".peers" / "fuzz-corpus"
TARGETS = ("wire", "peer", "http")
ATHERIS = "atheris==3.0.0"


def environment() -> str:
    python = HOME / "bin" / "python"
    if not python.exists():
        print(f"installing {ATHERIS} in {HOME}", flush=True)
        venv.create(HOME, with_pip=True)
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, ATHERIS, "-e", str(ROOT)], check=True)
    return str(python)


def fuzz(python: str, target: str, seconds: int) -> bool:
    script = str(ROOT / "fuzz" / f"fuzz_{target}.py")
    corpus, found = CORPUS / target, CORPUS / f"{target}-found"
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    seeding = [python, script, "--seed", str(corpus)]
    subprocess.run(seeding, check=True, stderr=subprocess.DEVNULL)
    words = CORPUS / "words.dict"
    write_dictionary(words)
    log = CORPUS / f"{target}.log"
    print(f"{target}: {seconds} s, log in {log}", flush=True)
    started = time.monotonic()
    with log.open("w", errors="replace") as out:
        command = [python, script, str(corpus), f"-max_total_time={seconds}", f"-dict={words}"]
        command += [
            "-max_len=4096",
            f"-artifact_prefix={found}/",
            "-timeout=20",
            "-rss_limit_mb=1024",
        ]
        status = subprocess.run([*command, "-print_final_stats=1"], stdout=out, stderr=out)
    took = time.monotonic() - started
    return report(target, log.read_text(errors="replace"), took, status.returncode)


def report(target: str, text: str, took: float, status: int) -> bool:
    progress = re.findall(r"^#(\d+)\s.*?cov: (\d+) ft: (\d+) corp: (\d+)", text, re.MULTILINE)
    if progress:
        runs, edges, features, kept = progress[-1]
        print(f"{target}: {runs} executions in {took:.0f} s, {edges} edges, {features} features,")
        print(f"{target}: {kept} inputs kept")
    for artifact in re.findall(r"Test unit written to (\S+)", text):
        print(f"{target}: FOUND {artifact}")
    if status:
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        print("\n".join(lines[-30:]))
    else:
        print(f"{target}: nothing found")
    sys.stdout.flush()
    return status == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--replay", metavar="FILE", help="run one input and show what happens")
    options = parser.parse_args()
    python = environment()
    targets = options.target or TARGETS
    if options.replay:
        script = str(ROOT / "fuzz" / f"fuzz_{targets[0]}.py")
        return subprocess.run([python, script, options.replay]).returncode
    fine = [fuzz(python, target, options.seconds) for target in targets]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    raise SystemExit(main())
