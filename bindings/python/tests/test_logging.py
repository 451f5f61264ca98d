# SPDX-License-Identifier: Apache-2.0
"""Where the library's log goes, and in whose words its errors are."""

import glob
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest

import transfer_engine as te
from support import HANG_S, HOST, Case, until
from transfer_engine import _log
from transfer_engine._errors import _CALLS, _PROPERTIES, in_python

FAILS = """
import logging, sys, transfer_engine as te
if len(sys.argv) > 1:
    logging.basicConfig(level=sys.argv[1])
engine = te.Engine(name="127.0.0.1", options=OPTIONS)
segment = engine.open(engine.name)
try:
    segment.write(bytearray(5), 4096)
except te.NotRegistered as e:
    print(e)
"""
NO_EFFECT = {"TE_NO_SUCH_VARIABLE": "1"}  # which is a WARN of the library, and no error


def environment(variables):
    """This one, with these variables for the library's log and no others."""
    names = ("MC_LOG_LEVEL", "MC_LOG_DIR", "MC_VERBOSE")
    return {k: v for k, v in {**os.environ, **variables}.items() if k in variables or k not in names}


def failing(*level, options=None, **variables):
    """What a program says on stderr in which one call fails."""
    done = subprocess.run(
        [sys.executable, "-c", FAILS.replace("OPTIONS", repr(options)), *level],
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    assert "register() it first [TE_ERR_NOT_REGISTERED]" in done.stdout, done.stdout
    return done.stderr


# Threads that have raised and ended before the library's lines of it are read.
GONE = """
import logging, threading, transfer_engine as te
from transfer_engine import _log
logging.basicConfig(level="WARNING")
engine = te.Engine(name="127.0.0.1")
segment = engine.open(engine.name)
gate, taken, take = threading.Event(), [], _log._record
def held(line):
    gate.wait()
    taken.append(line)
    take(line)
_log._record = held
def fail():
    try:
        segment.write(bytearray(5), 4096)
    except te.NotRegistered:
        pass
for _ in range(3):
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
gate.set()
engine.close()
_log.stop()
print(sum(b"TE_ERR_" in line for line in taken))
"""


class Kept(logging.Handler):
    """Keeps the records, and can be made to wait before each."""

    def __init__(self):
        super().__init__()
        self.records = []
        self.gate = threading.Event()
        self.gate.set()
        self.waits = threading.Event()

    def emit(self, record):
        if not self.gate.is_set():
            self.waits.set()
            self.gate.wait()
        self.records.append((record.levelno, record.getMessage()))

    def has(self, level, pattern):
        return any(n == level and re.search(pattern, text) for n, text in list(self.records))


class Processes(unittest.TestCase):
    def test_nothing_is_printed_where_nobody_configured_logging(self):
        self.assertEqual(failing(**NO_EFFECT), "")

    def test_threads_that_have_ended_have_raised_all_the_same(self):
        done = subprocess.run(
            [sys.executable, "-c", GONE], env=environment({}), capture_output=True, text=True, timeout=HANG_S
        )
        self.assertEqual((done.returncode, done.stdout.strip(), done.stderr), (0, "3", ""))

    def test_levels(self):
        effect = "WARNING:transfer_engine.library:variables of the environment without effect"
        fails = "DEBUG:transfer_engine.library:TE_ERR_NOT_REGISTERED: request 0"
        up = "INFO:transfer_engine.library:engine 127.0.0.1:"
        for level, there, missing in (
            ("DEBUG", [effect, fails, up], []),
            ("INFO", [effect, up], ["TE_ERR_"]),
            ("WARNING", [effect], ["TE_ERR_", "INFO"]),
            ("CRITICAL", [], [":transfer_engine"]),
        ):
            said = failing(level, **NO_EFFECT)
            for text in there:
                self.assertIn(text, said)
            for text in missing:
                self.assertNotIn(text, said)
            self.assertNotIn(" te] ", said)
            self.assertNotIn("te_register", said)

    def test_the_librarys_own_log_where_it_is_asked_for(self):
        own = r"^W\d{4} .* te\] TE_ERR_NOT_REGISTERED: request 0.* te_register\(\) it first$"
        self.assertRegex(failing("DEBUG", MC_LOG_LEVEL="WARNING"), own)
        self.assertRegex(failing("DEBUG", options={"MC_LOG_LEVEL": "WARNING"}), own)
        for by_option in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                wanted = {"MC_LOG_DIR": folder}
                if by_option:
                    self.assertEqual(failing("DEBUG", options=wanted), "")
                else:
                    self.assertEqual(failing("DEBUG", **wanted), "")
                (path,) = glob.glob(os.path.join(folder, "transfer_engine.*.log"))
                with open(path, encoding="utf-8") as f:
                    self.assertRegex(f.read(), re.compile(own, re.M))


@unittest.skipIf(
    any(os.environ.get(name) for name in _log._OF_THE_LIBRARY), "the library has its own log here"
)
class Records(Case):
    def setUp(self):
        self.kept = Kept()
        _log.logger.addHandler(self.kept)
        self.addCleanup(_log.logger.removeHandler, self.kept)
        _log.logger.setLevel(logging.DEBUG)
        self.addCleanup(_log.logger.setLevel, logging.NOTSET)

    def fail(self, engine):
        with self.assertRaises(te.NotRegistered):
            engine.open(engine.name).write(bytearray(5), 4096)

    def test_a_handler_that_does_not_return_holds_nothing_up(self):
        with te.Engine(name=HOST) as engine:
            self.kept.gate.clear()
            self.addCleanup(self.kept.gate.set)
            until(lambda: (engine.probe(f"{HOST}:1"), self.kept.waits.is_set())[1])
            region = engine.register(bytearray(100))
            segment = engine.open(engine.name)
            for _ in range(2000):  # lines for more than the pipe takes
                engine.probe(f"{HOST}:1")
                self.assertEqual(segment.write(region.address, region.address + 50, 10), 10)
            engine.close()
        self.kept.gate.set()
        before = len(self.kept.records)
        with te.Engine(name=HOST):
            until(lambda: len(self.kept.records) > before)

    def test_a_handler_that_raises(self):
        def refuse(_):
            raise ValueError("a filter of the test")

        _log.logger.addFilter(refuse)
        with te.Engine(name=HOST) as engine:
            self.fail(engine)
        _log.logger.removeFilter(refuse)
        with te.Engine(name=HOST) as engine:
            until(lambda: self.kept.has(logging.INFO, f"engine {engine.name} is up"))

    def test_a_child_has_a_log_of_its_own(self):
        with te.Engine(name=HOST) as engine:
            until(lambda: self.kept.has(logging.INFO, f"engine {engine.name} is up"))
            del self.kept.records[:]
            for closes in (False, True):
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        if closes:  # as programs do that become daemons
                            os.closerange(3, 4096)
                        with te.Engine(name=HOST) as own:
                            until(lambda: self.kept.has(logging.INFO, f"engine {own.name} is up"))
                        code = 7
                    finally:
                        os._exit(code)
                self.assertEqual(os.WEXITSTATUS(os.waitpid(child, 0)[1]), 7)
            self.fail(engine)
            until(lambda: self.kept.has(logging.DEBUG, "TE_ERR_NOT_REGISTERED"))
            self.assertFalse(self.kept.has(logging.INFO, "is up"))


class Words(unittest.TestCase):
    def test_calls_have_the_names_that_they_have_here(self):
        self.assertEqual(in_python("te_wait() or te_cancel() first"), "wait() or cancel() first")
        self.assertEqual(in_python("te_engine_name() gives it"), "Engine.name gives it")
        self.assertEqual(in_python("te_segment list, te_no_such()"), "te_segment list, te_no_such()")

    def test_what_the_table_names_is_there(self):
        kinds = (te.Engine, te.Segment, te.Batch, te.Prepared)
        for name in _CALLS.values():
            owner, _, method = name.rpartition(".")
            where = [getattr(te, owner)] if owner else kinds
            found = [getattr(kind, method, None) for kind in where]
            if name in _PROPERTIES:
                self.assertIsInstance(found[0], property, name)
            else:
                self.assertTrue(any(map(callable, found)), name)

    def test_no_text_names_te_info(self):
        """Wheels have none: what te_info --config lists is in docs/config.md, too."""
        with self.assertRaisesRegex(te.RequestError, "no option NOPE: docs/config.md lists all"):
            te.Engine(name=HOST, options={"NOPE": "1"})
        texts = [text for text in self.literals() if "te_info" in text]
        self.assertGreater(len(texts), 1)
        for text in texts:
            self.assertNotIn("te_info", in_python(text))

    def test_every_call_that_a_text_of_the_library_names(self):
        found = {call for text in self.literals() for call in re.findall(r"\b(te_\w+)\(\)", text)}
        self.assertGreater(len(found), 10)
        # This package calls te_event_fd() before te_done(), always.
        self.assertEqual(found - {"te_event_fd"}, set(_CALLS))

    def literals(self):
        """The strings of the library's sources."""
        source = os.path.join(os.environ.get("TE_TEST_SRC", ""), "src")
        if not os.path.exists(os.path.join(source, "core")):
            self.skipTest("TE_TEST_SRC does not say where the library's sources are")
        for path in glob.glob(os.path.join(source, "**", "*.c"), recursive=True):
            if path.endswith(os.path.join("conf", "table.c")):
                continue  # the help of the options
            with open(path, encoding="utf-8") as f:
                yield from re.findall(r'"(?:[^"\\\n]|\\.)*"', f.read())


if __name__ == "__main__":
    unittest.main()
