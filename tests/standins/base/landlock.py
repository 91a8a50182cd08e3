"""Landlock for a process that is about to become a command: which paths it may read and which it may write, and no others at all."""
import ctypes
import os
import stat
import struct

CREATE, ADD, RESTRICT = 444, 445, 446       # the same on every architecture
VERSION = 1                                  # flag of CREATE that asks for the ABI
PATH_BENEATH = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL_DEV = 1, 2, 4, 8, 1 << 14, 1 << 15
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READ = EXECUTE | READ_FILE | READ_DIR
BITS = {1: 13, 2: 14, 3: 15, 4: 15}          # rights each ABI knows; 16 from the fifth on
PR_SET_NO_NEW_PRIVS = 38

libc = ctypes.CDLL(None, use_errno=True)


def abi():
    """The kernel's version of it; 0 when it has none or it may not be used."""
    return max(libc.syscall(CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION)), 0)


def _check(value):
    if value < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return value


def restrict(read_only, read_write):
    """Holds the calling process and all it starts to these paths; one that is not there is left out."""
    known = (1 << BITS.get(abi(), 16)) - 1
    rules = _check(libc.syscall(CREATE, struct.pack("<Q", known), ctypes.c_size_t(8), ctypes.c_uint32(0)))
    for paths, rights in ((read_only, READ), (read_write, known)):
        for path in paths:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            allowed = rights & known & (~0 if stat.S_ISDIR(os.fstat(fd).st_mode) else OF_FILES)
            _check(libc.syscall(ADD, ctypes.c_int(rules), ctypes.c_int(PATH_BENEATH), struct.pack("<Qi", allowed, fd), ctypes.c_uint32(0)))
            os.close(fd)
    _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _check(libc.syscall(RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0)))
    os.close(rules)
