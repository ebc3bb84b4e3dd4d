"""torch.utils.benchmark.Timer commits after each statement, and holds the value of its last expression until then.

Results that nobody holds are not computed. torch's timer waits for the device at the end of a block of statements, so
that the time is that of the work. A Timer with a timer of its own is left as it is, and so are statements in C++.
"""

import ast
import functools
import timeit

import torch

from headrace._library import _C

_NAME = "_headrace_result"


def _committed(statement):
    """The statement, followed by a commit; None if it is not Python that can be changed."""
    try:
        tree = ast.parse(statement)
    except SyntaxError:  # timeit accepts more, such as `return`
        return None
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        target = ast.copy_location(ast.Name(_NAME, ast.Store()), last)
        tree.body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
        statement = ast.unparse(tree)
    return f"{statement}\n_headrace_commit()"


def _commit():
    if _C.is_open():
        torch.headrace.commit()


def register(module):
    construct = module.Timer.__init__
    if hasattr(construct, "commits"):
        return

    @functools.wraps(construct)
    def __init__(self, *arguments, **names):
        construct(self, *arguments, **names)
        plain = self._timer
        if type(plain) is not timeit.Timer or plain.timer is not module.timer:
            return
        statement = _committed(self._task_spec.stmt)
        if statement is not None:
            unwrap = module.valgrind_timer_interface.CopyIfCallgrind.unwrap_all
            values = {**unwrap(self._globals), "_headrace_commit": _commit}
            self._timer = timeit.Timer(statement, self._task_spec.setup, module.timer, values)

    __init__.commits = True
    module.Timer.__init__ = __init__
