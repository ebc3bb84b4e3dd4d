"""savez_compressed: archives of arrays, compressed by Python's zipfile. docs/arrays.md describes all files."""

import contextlib
import os
import stat

from headrace import _arrays

__all__ = ["savez_compressed"]


@contextlib.contextmanager
def _written(path):
    """A new file, which takes the path's place at the end; after a failure it is removed, and the path is as before."""
    target = os.path.realpath(path)
    mode = os.stat(target).st_mode if os.path.exists(target) else None
    if mode is not None and not stat.S_ISREG(mode):
        raise ValueError(f"{os.fsdecode(path)}: is no regular file")
    temporary = target + (b".%d.tmp" % os.getpid() if isinstance(target, bytes) else f".{os.getpid()}.tmp")
    with open(temporary, "xb") as stream:
        try:
            if mode is not None:
                os.chmod(temporary, stat.S_IMODE(mode))
            yield stream
            stream.flush()
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise


def savez_compressed(file, /, *args, **kwargs):
    """Writes arrays as NumPy's compressed archive (.npz), to a path or an object with `write`.

    Those without a name get arr_0, arr_1, ..."""
    import zipfile

    named = {f"arr_{i}": x for i, x in enumerate(args)}
    if twice := named.keys() & kwargs:
        raise ValueError(f"savez_compressed: {min(twice)} is the name of an array without a name, too")
    if hasattr(file, "write"):
        target = contextlib.nullcontext(file)
    else:
        path = os.fspath(file)
        ending = b".npz" if isinstance(path, bytes) else ".npz"
        target = _written(path if path.endswith(ending) else path + ending)
    with target as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, x in (named | kwargs).items():
            info = zipfile.ZipInfo(name + ".npy")  # of 1980, so that equal arrays make equal files
            info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as member:
                _arrays.save(member, x)
