"""A Python that has imported what takes seconds, and runs scripts in forks of itself.

    warm_python.py MODULE …

A line on standard input is a call, [script, arguments, folder to run in, files for standard output and standard error]. Answers
with two lines: the process, which leads a group of its own, and the exit code of the script.
"""
import importlib
import json
import os
import pathlib
import runpy
import sys
import traceback


def run_here(script, arguments, folder, output, errors):
    """The exit code of the script, as if this process were its own."""
    os.setsid()
    os.chdir(folder)
    for number, (path, flags) in enumerate([(os.devnull, os.O_RDONLY), (output, os.O_WRONLY), (errors, os.O_WRONLY)]):
        os.dup2(os.open(path, flags), number)
    sys.argv = [script, *arguments]
    sys.path[0] = str(pathlib.Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main():
    for module in sys.argv[1:]:
        importlib.import_module(module)
    if "torch" in sys.modules:
        # A fork makes its thread pool anew at the first use: two threads at once would find none.
        os.register_at_fork(after_in_child=lambda: sys.modules["torch"].set_num_threads(1))
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            code = run_here(*json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
