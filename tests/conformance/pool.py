"""Units of work in forked processes: a crash or a hang of one costs that unit alone.

The parent never opens the device, so that its children may. A child reports each check before and after it runs it;
when the child dies, the running check is to blame, and a fresh child continues with the unit's remaining checks.
"""

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import wait


def serve(connection, run_unit, quiet):
    if quiet:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
    while True:
        unit = connection.recv()
        if unit is None:
            os._exit(0)
        name, skip = unit
        for message in run_unit(name, skip):
            connection.send(message)
        connection.send(("end",))


class Worker:
    def __init__(self, run_unit, quiet):
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, run_unit, quiet), daemon=True)
        self.process.start()
        theirs.close()
        self.unit = None

    def begin(self, unit, skip):
        self.unit, self.skip, self.check, self.since = unit, list(skip), None, time.monotonic()
        self.connection.send((unit, self.skip))

    def end(self):
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.connection.close()


def run(units, run_unit, jobs, seconds, quiet=True):
    """Yields (unit, check, outcome, detail) for every check of every unit, then (unit, None, None, None) at its end.

    run_unit(name, skip) runs in a child and yields ("check", name) before a check and ("done", name, outcome, detail)
    after it; it leaves out the checks in `skip`. A check that takes longer than `seconds` is a hang.
    """
    waiting = [(unit, ()) for unit in reversed(units)]
    workers = [Worker(run_unit, quiet) for _ in range(min(jobs, len(units)))]
    try:
        while waiting or any(worker.unit for worker in workers):
            for worker in workers:
                if worker.unit is None and waiting:
                    worker.begin(*waiting.pop())
            busy = {worker.connection: worker for worker in workers if worker.unit}
            ready = wait(list(busy), timeout=1.0)
            for connection, worker in busy.items():
                if connection in ready:
                    dead = False
                    try:
                        message = connection.recv()
                    except (EOFError, ConnectionResetError):
                        dead = True
                    if not dead:
                        worker.since = time.monotonic()
                        if message[0] == "check":
                            worker.check = message[1]
                        elif message[0] == "done":
                            worker.skip.append(message[1])
                            yield worker.unit, *message[1:]
                        else:
                            unit, worker.unit = worker.unit, None
                            yield unit, None, None, None
                        continue
                    worker.process.join()
                    outcome, detail = "crash", f"the process ended with {worker.process.exitcode}"
                elif time.monotonic() - worker.since > seconds:
                    outcome, detail = "hang", f"no answer for {seconds} s"
                else:
                    continue
                unit, check = worker.unit, worker.check or "samples"
                worker.end()
                workers[workers.index(worker)] = Worker(run_unit, quiet)
                yield unit, check, outcome, detail
                if worker.check is None:
                    yield unit, None, None, None
                else:
                    waiting.append((unit, [*worker.skip, check]))
    finally:
        for worker in workers:
            worker.end()
