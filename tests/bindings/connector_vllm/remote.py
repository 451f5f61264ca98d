# SPDX-License-Identifier: Apache-2.0
"""A server in a process of its own: a call of a method here is one there.

A process whose server was closed well waits for the next one, since starting it takes longer than most tests.
"""
import multiprocessing
import os
import signal

import te_proc as te

SPAWN = multiprocessing.get_context("spawn")  # an engine is not for forked children


def prepare():
    """What all servers see: the library of the build tree, one address, and the limits of a machine that is busy."""
    library = os.path.join(te.BUILD, "lib", "libtransfer_engine.so.0")
    if not os.path.exists(library):
        te.skip("libtransfer_engine.so.0 is not built")
    os.environ.update(te.PATIENT, TE_BIND="127.0.0.1", TRANSFER_ENGINE_LIBRARY=library, MC_FORCE_TCP="1",
                      TE_TRANSFER_TIMEOUT_MS="3600000",
                      PYTHONDONTWRITEBYTECODE="1")


class _Process:
    idle = []

    def __init__(self, serve, path):
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(theirs, path), daemon=True)
        self.process.start()
        theirs.close()


class Remote:
    def __init__(self, test, serve, path=None, **arguments):
        self._whole = _Process.idle.pop() if _Process.idle else _Process(serve, path)
        self._pipe, self.process = self._whole.pipe, self._whole.process
        test.addCleanup(self._close)
        self.make(**arguments)

    def _receive(self):
        if not self._pipe.poll(te.HANG_S):
            raise AssertionError(f"no answer within {te.HANG_S} s")
        return self._pipe.recv()

    def __getattr__(self, method):
        def call(*words, **named):
            self.begin(method, *words, **named)
            return self.end()
        return call

    def begin(self, method, *words, **named):
        """A call whose answer end() gives."""
        self._pipe.send((method, words, named))

    def end(self):
        well, answer = self._receive()
        if not well:
            raise AssertionError(answer)
        return answer

    def freeze(self):
        """Returns when all of its threads have stopped."""
        os.kill(self.process.pid, signal.SIGSTOP)
        te.until(lambda: set(self._states()) <= {"T", "t"}, "a stop")

    def _states(self):
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            with open(f"/proc/{self.process.pid}/task/{task}/stat", encoding="ascii", errors="replace") as f:
                yield f.read().rpartition(")")[2].split()[0]

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.join()

    def _close(self):
        """The process ends with what did not end well."""
        try:
            if self.process.is_alive():
                self.thaw()
                self.shut()
                _Process.idle.append(self._whole)
        except BaseException:
            self.kill()
            raise
