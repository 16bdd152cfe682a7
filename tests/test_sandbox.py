"""The sandbox against programs that mean harm: the right verdict, no harm, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evals.sandbox import Limits, RunResult, Sandbox, SandboxError, layers, run_program

ROOT = Path(__file__).resolve().parent.parent
NAMESPACES = frozenset({"user_namespace", "mount_namespace", "pid_namespace", "network_namespace", "ipc_namespace"})
QUICK = Limits(wall_s=2, cpu_s=2)

#: Each must fail, for one of the reasons named.
HOSTILE = {
    "endless loop": ("while True: pass", "timeout"),
    "endless recursion": ("def f(): f()\nf()", "error"),
    "recursion without a limit": ("import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", "memory timeout killed"),
    "recursion in C": (
        "import sys\nsys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)\nraise MemoryError",
        "memory killed error timeout",
    ),
    "fork bomb": ("import os\nwhile True:\n    os.fork()", "processes error timeout"),
    "fork bomb that expects refusals": (
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        "processes timeout",
    ),
    "thread bomb": (
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,)).start()",
        "error timeout",
    ),
    "100 GB at once": ("x = bytearray(100 * 2**30)", "memory"),
    "memory bit by bit": ("x = []\nwhile True: x.append(bytearray(2**20))", "memory timeout"),
    "memory in children": (
        "import os, time\nfor _ in range(8):\n    if not os.fork():\n        x = bytearray(2**28)\n"
        "        time.sleep(60)\ntime.sleep(60)",
        "memory timeout",
    ),
    "gigabytes of output": ("while True: print('x' * 10**6)", "output"),
    "gigabytes of errors": ("import sys\nwhile True: sys.stderr.write('x' * 10**6)", "output"),
    "gigabytes on disk": ("f = open('f', 'w')\nwhile True: f.write('x' * 2**20)", "error"),
    "many files": ("i = 0\nwhile True:\n    open(f'f{i}', 'w').write('x' * 10**6)\n    i += 1", "error"),
    "many open files": ("x = [open('/dev/null') for _ in range(10**6)]", "error"),
    "many subfolders": ("import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')", "error timeout"),
    "os._exit": ("import os\nos._exit(0)\nassert False", "exit"),
    "sys.exit": ("import sys\nsys.exit(0)\nassert False", "exit"),
    "exit": ("exit()\nassert False", "exit"),
    "SystemExit in a thread's disguise": ("raise SystemExit", "exit"),
    "kills its parent": ("import os, signal\nos.kill(os.getppid(), 9)\nassert False", "error"),
    "kills everyone": ("import os\nos.kill(-1, 9)\nassert False", "error killed"),
    "kills its group": ("import os\nos.killpg(0, 9)\nassert False", "error killed"),
    "kills itself": ("import os\nos.kill(os.getpid(), 9)\nassert False", "error killed"),
    "stops itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nassert False", "error timeout"),
    "dies of a fault": ("import faulthandler\nfaulthandler._sigsegv()", "killed"),
    "closes standard error": ("import os\nos.close(2)\nassert False", "error"),
    "closes every descriptor": ("import os\nos.closerange(0, 64)\nassert False", "error exit"),
    "closes every descriptor and ends": ("import os\nos.closerange(0, 64)", "error exit forged"),
    "ignores SIGTERM": (
        "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\n"
        "while True: pass",
        "timeout",
    ),
    "catches everything": ("while True:\n    try:\n        while True: pass\n    except BaseException: pass", "timeout"),
    "sleeps": ("import time\ntime.sleep(100)", "timeout"),
    "threads that never end": (
        "import threading\ndef f():\n    while True: pass\nthreading.Thread(target=f).start()",
        "timeout",
    ),
    "leaves a process behind and exits": (
        "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(99)",
        "exit",
    ),
    "sockets": ("import socket\nsocket.socket()", "error"),
    "local sockets": ("import socket\nsocket.socket(socket.AF_UNIX)", "error"),
    "looks a name up": ("import socket\nsocket.getaddrinfo('example.org', 80)", "error"),
    "a module that is not there": ("import surely_not_here", "error"),
    "null bytes": ("x = 1\0", "error"),
    "surrogates": ("x = '\ud800'", "error"),
    "no syntax": ("def f(:", "error"),
    "deep nesting": ("(" * 500 + ")" * 500, "error memory"),
    "writes to the system": ("open('/usr/x', 'w')", "error"),
    "writes beside its folder": ("open('/etc/x', 'w')", "error"),
    "passwords": ("open('/etc/shadow').read()", "error"),
    "mounts": ("import ctypes\nctypes.CDLL(None).mount(b'a', b'/', b'tmpfs', 0, 0)\nassert False", "error"),
    "assert False": ("assert False", "error"),
}

#: Each tries to end with a pass without reaching its last statement, which fails.
FORGERIES = {
    "every descriptor": "import os\nfor n in range(256):\n    try: os.write(n, b'done\\nok\\n{\"passed\": true}\\n')\n"
    "    except OSError: pass\n",
    "note and leave": "import os\nos.write(3, b'done\\n')\nos._exit(0)\n",
    "note and wait at the gate": "import os, fcntl\nos.write(3, b'done\\n')\nfcntl.flock(5, fcntl.LOCK_EX)\n",
    "gate from a thread": "import os, fcntl, threading\nos.write(3, b'done\\n')\n"
    "threading.Thread(target=fcntl.flock, args=(5, fcntl.LOCK_EX)).start()\n",
    "gate from a child": "import os, fcntl\nif not os.fork():\n    os.write(3, b'done\\n')\n    fcntl.flock(5, 2)\n",
    "gate from a signal handler": "import os, fcntl, signal\nos.write(3, b'done\\n')\n"
    "signal.signal(10, lambda *_: fcntl.flock(5, 2))\nos.kill(os.getpid(), 10)\n",
    "gate from an exit handler": "import atexit, os, fcntl\n"
    "atexit.register(lambda: (os.write(3, b'done\\n'), fcntl.flock(5, 2)))\n",
    "gate from the exception hook": "import sys, os, fcntl\n"
    "sys.excepthook = lambda *_: (os.write(3, b'done\\n'), fcntl.flock(5, 2))\n",
    "gate from a destructor": "import os, fcntl\nclass C:\n    def __del__(self):\n"
    "        os.write(3, b'done\\n')\n        fcntl.flock(5, 2)\nc = C()\n",
    "locals of the frames below": "import sys\nf = sys._getframe()\nwhile f:\n    try:\n"
    "        for k in list(f.f_locals): f.f_locals[k] = None\n    except Exception: pass\n    f = f.f_back\n",
    "globals of the frames below": "import sys\nf = sys._getframe(1)\nwhile f:\n"
    "    for k in [k for k in f.f_globals if k[:2] != '__']: f.f_globals[k] = lambda *a, **k: {}\n    f = f.f_back\n",
    "a jump over the assertion": "import sys\ndef t(f, e, a):\n    if e == 'line': f.f_lineno += 1\n    return t\n"
    "try: sys.settrace(t)\nexcept BaseException: pass\nsys._getframe().f_trace = t\n",
    "a jump by monitoring": "import sys\ntry:\n    m = sys.monitoring\n    m.use_tool_id(1, 'x')\n"
    "    m.register_callback(1, m.events.LINE, lambda *a: m.DISABLE)\nexcept BaseException: pass\n",
    "objects found by the collector": "import gc\ntry:\n    for o in gc.get_objects():\n"
    "        if type(o) is list: o.clear()\nexcept BaseException: pass\n",
    "a hook of hooks": "import sys\nsys.addaudithook(lambda *a: None)\n"
    "try: sys.settrace(lambda *a: None)\nexcept RuntimeError as e:\n    f = e.__traceback__\n"
    "    while f.tb_next: f = f.tb_next\n    f.tb_frame.f_globals.clear()\n",
    "built-in names": "import builtins\nfor k in ('exec', 'compile', 'print', 'AssertionError', 'BaseException', 'vars'):\n"
    "    setattr(builtins, k, lambda *a, **k: None)\n",
    "standard functions": "import os, sys, json, fcntl\nos.write = os._exit = json.dumps = fcntl.flock = lambda *a: None\n"
    "sys.exit = lambda *a: None\n",
    "assertion methods": "import unittest\nunittest.TestCase.assertEqual = unittest.TestCase.assertTrue = lambda *a: None\n",
    "optimised away": "import sys\n__debug = False\nsys.flags\n",
    "another program in its place": "import os, sys\n"
    "os.execv(sys.executable, [sys.executable, '-S', '-c', 'import os; os.write(3, b\"done\\\\n\")'])\n",
}


def explain(result: RunResult) -> str:
    return f"{result.reason}: {result.explanation} {result.stderr[-300:]}"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_program_fails_for_the_right_reason(name: str) -> None:
    source, reasons = HOSTILE[name]
    began = time.monotonic()
    result = run_program(source, limits=QUICK)
    assert not result.passed
    assert result.reason in reasons.split(), explain(result)
    assert result.explanation
    assert time.monotonic() - began < 20
    assert run_program("print(1)").stdout == "1\n"


@pytest.mark.parametrize("name", FORGERIES)
def test_no_program_can_fake_its_end(name: str) -> None:
    result = run_program(FORGERIES[name] + "assert 1 == 2", limits=QUICK)
    assert not result.passed, explain(result)


@pytest.mark.parametrize("name", FORGERIES)
def test_nor_with_tests_behind_it(name: str) -> None:
    result = run_program(FORGERIES[name] + "def f(): return 1", tests="assert f() == 2", limits=QUICK)
    assert not result.passed, explain(result)


@pytest.mark.parametrize(
    "source",
    [
        "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.all = lambda x: True\ndef f(): return 5",
        "abs = lambda x: 0\nall = lambda x: True\ndef f(): return 5",
        "import math\nmath.isclose = lambda *a, **k: True\nmath.fabs = lambda x: 0\ndef f(): return 5",
        "import sys, types\nm = types.ModuleType('math')\nm.isclose = lambda *a: True\nm.fabs = lambda x: 0\n"
        "sys.modules['math'] = m\ndef f(): return 5",
        "def check(*a): pass\ndef f(): return 5\ncheck = None",
        "import builtins\nbuiltins.__build_class__ = builtins.__import__ = None\ndef f(): return 5",
    ],
)
def test_tests_have_builtins_and_modules_of_their_own(source: str) -> None:
    tests = (
        "import math\ndef check(c):\n    assert all([math.isclose(c(), 3), abs(c() - 3) < 1, math.fabs(c() - 3) < 1])\ncheck(f)"
    )
    result = run_program(source, tests=tests)
    assert result.reason == "error", explain(result)


def test_a_program_may_provide_a_builtin_of_its_own() -> None:
    source = "def sum(a, b): return a + b + 1"
    assert run_program(source, tests="assert sum(1, 2) == 4", provides=["sum"]).passed
    assert not run_program(source, tests="assert sum(1, 2) == 4").passed


@pytest.mark.parametrize(
    "source",
    [
        "",
        "print('hi')",
        "import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()",
        "import threading\nthreading.Thread(target=lambda: __import__('time').sleep(99), daemon=True).start()",
        "import os, shutil\nshutil.rmtree(os.getcwd())",
        "import os\npid = os.fork()\nif not pid: os._exit(0)\nos.waitpid(pid, 0)",
        "import asyncio\nasync def main(): await asyncio.sleep(0)\nasyncio.run(main())",
        "import numpy\nassert numpy.arange(3).sum() == 3",
        "import tempfile\nwith tempfile.NamedTemporaryFile() as f: f.write(b'x')",
        "import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\nassert P(1) == P(1)",
        "import sys\nsys.stdout.close()",
        "from __future__ import annotations\nx: int = 1",
        "π = 'π'\nassert π == '\\u03c0'\nprint(π)",
        "import subprocess, sys\nassert subprocess.run([sys.executable, '-S', '-c', '1']).returncode == 0",
        "import signal\nsignal.signal(signal.SIGALRM, lambda *_: None)\nsignal.alarm(1)",
        "def f(n): return n and f(n - 1)\nimport sys\nsys.setrecursionlimit(20000)\nf(9000)",
        "import collections, doctest, logging, typing\nlogging.getLogger('x').warning('y')\ndoctest.testmod()",
    ],
)
def test_honest_programs_pass(source: str) -> None:
    result = run_program(source)
    assert result.passed, explain(result)
    assert (result.reason, result.code, result.exception) == ("ok", 0, "")


def test_the_program_sees_nothing_of_ours() -> None:
    os.environ["SANDBOX_TEST_SECRET"] = "do-not-tell"
    try:
        source = """
import os, glob
print(sorted(os.environ), os.listdir())
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        print(open(path).read())
    except OSError:
        pass
print(os.getuid(), sorted(os.listdir("/proc/self/fd")))
"""
        with ClosingSandbox() as box:
            result = box.run(source)
    finally:
        del os.environ["SANDBOX_TEST_SECRET"]
    assert result.passed, explain(result)
    assert "do-not-tell" not in result.stdout
    assert "SANDBOX_TEST_SECRET" not in result.stdout
    assert result.stdout.startswith("['HOME', 'LANG', 'PATH', 'TMPDIR'] []")
    assert "pytest" not in result.stdout


class ClosingSandbox(Sandbox):
    """A sandbox that ends its fork server with the block."""

    def __enter__(self) -> ClosingSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_files_outside_are_out_of_reach(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("do-not-tell")
    secret.chmod(0o644)
    for path in (secret, ROOT / "pyproject.toml", Path("/proc/1/environ")):
        result = run_program(f"print(open({str(path)!r}).read())")
        assert "do-not-tell" not in result.stdout
        assert path.name == "environ" or result.reason == "error"
    target = tmp_path / "written.txt"
    run_program(f"open({str(target)!r}, 'w').write('x')")
    assert not target.exists()


def test_nothing_is_left_behind() -> None:
    source = (
        "import os, time\nopen('left.txt', 'w').write('x')\nopen('/dev/shm/left', 'w').write('x')\n"
        "for _ in range(3):\n    if not os.fork():\n        os.setsid()\n        time.sleep(77.125)\n"
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)"
    )
    with ClosingSandbox() as box:
        server = box.run("").passed and box._server
        assert server
        before = set(os.listdir("/tmp")) | set(os.listdir("/dev/shm"))
        assert box.run(source).passed
        assert (set(os.listdir("/tmp")) | set(os.listdir("/dev/shm"))) - before == set()
        assert _soon(lambda: _children(server.pid) == [])
    assert not Path(f"/proc/{server.pid}").exists()


def _soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def _children(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def test_neighbours_are_left_alone() -> None:
    with ThreadPoolExecutor(3) as pool:
        bomb = pool.submit(run_program, HOSTILE["fork bomb that expects refusals"][0], limits=QUICK)
        hog = pool.submit(run_program, HOSTILE["memory bit by bit"][0], limits=QUICK)
        honest = [run_program("import threading\nt = threading.Thread(target=print)\nt.start()") for _ in range(10)]
    assert all(result.passed for result in honest)
    assert not bomb.result().passed
    assert not hog.result().passed


def test_standard_input_is_given_or_closed() -> None:
    assert run_program("print(input(), input())", stdin="a\nb\n").stdout == "a b\n"
    assert run_program("import sys\nprint(len(sys.stdin.read()))", stdin="é" * 10**6).stdout == "1000000\n"
    assert run_program("import sys\nprint(repr(sys.stdin.read()))").stdout == "''\n"
    assert run_program("input()").exception == "EOFError"


def test_output_of_exit_handlers_and_threads_counts() -> None:
    source = "import atexit, threading, time\natexit.register(print, 'c')\n"
    source += "threading.Thread(target=lambda: (time.sleep(0.2), print('b'))).start()\nprint('a')"
    assert run_program(source).stdout == "a\nb\nc\n"


def test_explanation_names_the_assertion_and_its_values() -> None:
    result = run_program("def f(x): return x + 1", tests="assert f(1) == 2\nassert f(2) == 4, 'two'")
    assert result.explanation == "tests.py line 2: assert f(2) == 4, 'two'; AssertionError: two; left 3; right 4"
    result = run_program("def f(x): return x / 0", tests="def check(g):\n    n = 7\n    assert g(n) == 1\ncheck(f)")
    assert "ZeroDivisionError" in result.explanation
    assert "n = 7" in result.explanation
    assert result.exception == "ZeroDivisionError"
    result = run_program("class R:\n    def __repr__(self): raise ValueError\ndef f(): return R()", tests="assert f() == 2")
    assert not result.passed
    assert result.explanation


def test_results_repeat() -> None:
    source = "import random\nprint(random.random(), hash('x'), {'a', 'b', 'c'})"
    with ClosingSandbox() as box:
        other = box.run(source).stdout
    assert run_program(source).stdout == run_program(source).stdout == other


def test_many_programs_in_little_time_and_flat_memory() -> None:
    with ClosingSandbox() as box:
        box.run("")
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(box.run, ["pass"] * 50))
            before = _resident(box)
            began = time.monotonic()
            results = list(pool.map(box.run, [f"x = {n}\nassert x == {n}" for n in range(250)]))
        assert time.monotonic() - began < 30
        assert all(result.passed for result in results)
        assert _resident(box) - before < 2 * 2**20


def _resident(box: Sandbox) -> int:
    assert box._server is not None
    return int(Path(f"/proc/{box._server.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_fork_server_that_died_is_replaced() -> None:
    with ClosingSandbox() as box:
        assert box.run("").passed
        assert box._server is not None
        box._server.kill()
        box._server.wait()
        assert box.run("").passed


def test_a_forked_child_starts_its_own_server() -> None:
    assert run_program("").passed
    child = os.fork()
    if child == 0:
        os._exit(0 if run_program("").passed and not run_program("assert 0").passed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run_program("").passed


def test_every_layer_says_whether_it_is_active() -> None:
    found = layers()
    for name in ("mount_namespace", "pid_namespace", "network_namespace", "limits", "user", "capabilities", "seccomp"):
        assert found[name].split(":")[0] in ("active", "missing", "switched off"), name
    assert found["attestation"].startswith("active")


@pytest.mark.parametrize(
    "name", ["sockets", "passwords", "kills its parent", "fork bomb", "os._exit", "leaves a process behind and exits"]
)
def test_without_namespaces_the_rest_still_holds(name: str) -> None:
    source, reasons = HOSTILE[name]
    with ClosingSandbox(without=NAMESPACES) as box:
        result = box.run(source, limits=QUICK)
        assert result.reason in [*reasons.split(), "processes"], explain(result)
        server = box._server
        assert server is not None
        assert _soon(lambda: _children(server.pid) == [])
        assert box.run("open('f', 'w').write('x')\nassert open('f').read() == 'x'").passed


@pytest.mark.parametrize("name", sorted(FORGERIES)[:8])
def test_without_namespaces_no_end_can_be_faked(name: str) -> None:
    with ClosingSandbox(without=NAMESPACES) as box:
        assert not box.run(FORGERIES[name] + "assert 1 == 2", limits=QUICK).passed


def test_no_isolation_no_run_unless_asked_in_as_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = NAMESPACES | {"seccomp", "landlock"}
    with ClosingSandbox(without=bare) as box, pytest.raises(SandboxError, match="run-model-code-without-isolation"):
        box.run("print(1)")
    monkeypatch.setenv("EVALS_SANDBOX", "yes please")
    with ClosingSandbox(without=bare) as box, pytest.raises(SandboxError, match="no network"):
        box.run("print(1)")
    monkeypatch.setenv("EVALS_SANDBOX", "run-model-code-without-isolation")
    with ClosingSandbox(without=bare) as box:
        assert box.run("print(1)").stdout == "1\n"


def test_limits_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="wall_s must be positive, got 0"):
        Limits(wall_s=0)


@pytest.mark.parametrize(("source", "passed"), [("print(1)", True), ("import sys; sys.exit(0)", False)])
def test_command_prints_one_json_line(tmp_path: Path, source: str, passed: bool) -> None:
    file = tmp_path / "program.py"
    file.write_text(source)
    command = [sys.executable, "-m", "evals.sandbox", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    (line,) = done.stdout.splitlines()
    printed = json.loads(line)
    assert printed["passed"] is passed
    assert {"seconds", "reason", "explanation", "stdout"} <= printed.keys()
    assert done.returncode == 0, done.stderr


def test_packages_installed_below_tmp_stay_in_sight(tmp_path: Path) -> None:
    """The program's own empty /tmp must not hide an interpreter or package that lies there."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "kept_in_sight.py").write_text("value = 7\n")
    program = tmp_path / "program.py"
    program.write_text("import kept_in_sight\nassert kept_in_sight.value == 7\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), str(Path(__file__).parent.parent)])}
    command = [sys.executable, "-m", "evals.sandbox", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert json.loads(done.stdout)["passed"], done.stdout
