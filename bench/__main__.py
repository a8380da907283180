# SPDX-License-Identifier: Apache-2.0
"""``python -m bench [NAME…] [--quick]`` runs benchmarks; ``--docs`` writes the page."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

import bench
from bench import docs
from bench.harness import Benchmark, Result, keep, say, summary, text


def benchmarks() -> dict[str, ModuleType]:
    """Every benchmark by name, in the order in which all of them run: slow ones last."""
    modules = [
        importlib.import_module(f"bench.{found.name}")
        for found in pkgutil.iter_modules([str(Path(bench.__file__).parent)])
        if not found.ispkg and found.name != "__main__"
    ]
    found = [module for module in modules if isinstance(getattr(module, "ABOUT", None), Benchmark)]
    found.sort(key=lambda module: (module.ABOUT.slow, module.ABOUT.mark, module.__name__))
    return {module.__name__.rpartition(".")[2]: module for module in found}


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; 1 when a mark was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("name", nargs="*", help="benchmarks; all by default")
    parser.add_argument("--quick", action="store_true", help="only see that they run")
    parser.add_argument("--list", action="store_true", help="say which there are")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md anew")
    given = parser.parse_args(arguments)
    known = benchmarks()
    if given.list:
        for name, module in known.items():
            print(f"{name:24} mark {module.ABOUT.mark:>2}  {module.ABOUT.title}")
        return 0
    if given.docs:
        docs.write()
        return 0
    for name in given.name:
        if name not in known:
            parser.error(f"there is no benchmark {name!r}; there are {', '.join(known)}")
    missed = 0
    for name, module in known.items():
        if given.name and name not in given.name:
            continue
        say(f"{name} ...")
        result: Result = module.run(given.quick)
        print(text(summary(result)), end="\n\n", flush=True)
        if not given.quick:
            keep(result)
            missed += not all(check.met for check in result.checks)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
