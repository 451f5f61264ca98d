# SPDX-License-Identifier: Apache-2.0
"""Addresses of memory: of integers, and of objects that hold some.

An object is asked, in this order, for data_ptr() (tensors), __cuda_array_interface__, the buffer
protocol and __array_interface__. What has no plain address, such as a transposed array, is refused
with BufferError: its bytes would be others than those that the program sees in it.
"""

from __future__ import annotations

import ctypes
import operator
from array import array
from numbers import Integral
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

assert array("L").itemsize == 8  # several times as quick to fill as array("Q")
_MOST = (1 << 64) - 1


class OutOfRange(ValueError, OverflowError):
    """An integer that is no 64-bit word: a ValueError, and what an interpreter says of such ones."""


class Span(NamedTuple):
    """Where the bytes of an object are. `keep` must be held for as long as they are used."""

    address: int
    nbytes: Optional[int]  # None: an integer was given
    writable: bool
    device: bool
    keep: Any


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None
_SIMPLE = 0  # PyBUF_SIMPLE: contiguous bytes or an error


class _Pin:
    """The buffer of an object, which neither moves nor shrinks while this lives."""

    __slots__ = ("view", "_release")

    def __init__(self, obj: Any) -> None:
        self.view = _PyBuffer()
        self._release: Optional[Callable[..., None]] = None
        _get_buffer(obj, ctypes.byref(self.view), _SIMPLE)
        self._release = _release_buffer

    def __del__(self) -> None:
        release = getattr(self, "_release", None)  # __init__() may have been interrupted
        if release is not None:
            release(ctypes.byref(self.view))


def kind(obj: Any) -> str:
    """What an error calls an object."""
    return f"the {type(obj).__name__}"


def _of_tensor(obj: Any) -> Span:
    place = getattr(getattr(obj, "device", None), "type", "cpu")
    if place == "meta":
        raise BufferError(
            f"{kind(obj)} is on the device 'meta', so it has no memory; use one that has, such as"
            " torch.empty_like(t, device='cpu')"
        )
    if str(getattr(obj, "layout", "torch.strided")) != "torch.strided":
        raise BufferError(
            f"{kind(obj)} is sparse ({obj.layout}), so its bytes are in several places; use those of"
            " its .indices() and .values(), or .to_dense()"
        )
    if hasattr(obj, "is_contiguous") and not obj.is_contiguous():
        raise BufferError(f"{kind(obj)} is not contiguous; use .contiguous(), which copies it")
    nbytes = getattr(obj, "nbytes", None)
    if callable(nbytes):  # of a storage of torch
        nbytes = nbytes()
    if nbytes is None and hasattr(obj, "element_size"):
        nbytes = obj.element_size() * obj.numel()
    return Span(obj.data_ptr(), None if nbytes is None else int(nbytes), True, place != "cpu", obj)


def _of_interface(obj: Any, interface: Any, device: bool) -> Span:
    """By the array interface of numpy or that of CUDA, which differ in nothing here."""
    shape = interface["shape"]
    typestr = interface["typestr"]  # "<i4", "<M8[s]"
    item = int(typestr[2:].partition("[")[0])
    if typestr[1] == "U":
        item *= 4
    nbytes = item
    strides = interface.get("strides")
    for length in shape:
        nbytes *= length
    if strides is not None and nbytes:
        expected = item
        for length, stride in zip(reversed(shape), reversed(strides)):
            if length != 1 and stride != expected:
                raise BufferError(
                    f"{kind(obj)} is not contiguous; use a copy that is, such as"
                    " numpy.ascontiguousarray(a)"
                )
            expected *= length
    address, readonly = interface["data"]
    return Span(int(address), nbytes, not readonly, device, obj)


def _holds_objects(obj: Any) -> bool:
    """True for arrays of references to objects, whose bytes mean nothing elsewhere."""
    kind = getattr(obj, "dtype", None)
    return bool(getattr(kind, "hasobject", False)) or (
        isinstance(obj, memoryview) and "O" in obj.format
    )


def _of_buffer(obj: Any) -> Span:
    pin = _Pin(obj)
    return Span(pin.view.buf or 0, pin.view.len, not pin.view.readonly, False, pin)


_POINTERS = (ctypes._Pointer, ctypes.c_char_p, ctypes.c_wchar_p)


def span(obj: Any) -> Span:
    """Where the bytes of `obj` are: an address, or something that holds memory."""
    if isinstance(obj, Integral):
        return Span(int(obj), None, True, False, None)
    if isinstance(obj, ctypes.c_void_p):
        return Span(obj.value or 0, None, True, False, None)
    if _holds_objects(obj):
        raise BufferError(
            f"the elements of {kind(obj)} are Python objects, which are of use in this process only;"
            " use a dtype of numbers"
        )
    if callable(getattr(obj, "data_ptr", None)):
        return _of_tensor(obj)
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(obj, interface, True)
    if isinstance(obj, _POINTERS):
        raise TypeError(f"{kind(obj)} does not say how long it is; give its address and a length")
    try:
        return _of_buffer(obj)
    except (TypeError, ValueError, BufferError) as e:
        interface = getattr(obj, "__array_interface__", None)
        if interface is not None:
            return _of_interface(obj, interface, False)
        if isinstance(e, TypeError):
            raise TypeError(
                f"{kind(obj)} is neither an address nor something that holds memory: an array, a tensor"
                " or a bytearray, for instance"
            ) from None
        raise BufferError(
            f"the memory of {kind(obj)} has no plain address ({e}); use a contiguous copy, such as"
            " bytearray(m)"
        ) from e


def integer(value: Any, what: str, most: int = _MOST) -> int:
    """An integer of 0 to `most`, which the error calls `what`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer, not {type(value).__name__}") from None
    if not 0 <= number <= most:
        wrong = "negative" if number < 0 else f"more than {most}"
        raise OutOfRange(f"{what}: {number} is {wrong}")
    return number


def sized_span(obj: Any, length: Optional[int], written: bool = False) -> Tuple[Span, int]:
    """The same with the length that is meant, checked against the object's own."""
    where = span(obj)
    if length is None:
        if where.nbytes is None:
            raise TypeError("an address needs a length, an object that holds memory does not")
        length = where.nbytes
    else:
        length = integer(length, "length")
    if integer(where.address, "local address") + length > 1 << 64:
        raise OverflowError("the memory ends beyond the address space")
    if where.nbytes is not None and length > where.nbytes:
        raise BufferError(
            f"{length} bytes are more than the {where.nbytes} of {kind(obj)}"
        )
    if written and not where.writable:
        raise BufferError(
            f"{kind(obj)} is read-only, and a read writes to it; use one that is not, such as a bytearray"
            " or a copy"
        )
    return where, length


def peers_access(spans: Sequence[Tuple[Span, int]], access: Optional[int]) -> int:
    """What peers may do with memory that is registered, None: all that can be done with it; 1 is to read, 2 to write."""
    read_only = not all(where.writable for where, _ in spans)
    if access is not None and read_only and access & 2:
        raise BufferError(
            "peers cannot write to memory that is read-only: use access=Access.READ, or register a"
            " copy that is not"
        )
    return int(access) if access is not None else 1 if read_only else 3


def listed(values: Any, what: str) -> Any:
    """The same, which is a list or can be used as one."""
    if isinstance(values, (str, bytes, bytearray)) or not hasattr(values, "__len__"):
        raise TypeError(f"{what} must be a list, not {type(values).__name__}")
    return values


def _integers(values: Any, what: str) -> Any:
    """A list of integers: those of an integer array are made plain at once."""
    if type(values) is list:  # soon, since this is part of each transfer
        return values
    if not hasattr(values, "tolist"):
        return listed(values, what)
    plain = values.tolist()
    if not isinstance(plain, list) or (plain and not isinstance(plain[0], int)):
        raise TypeError(
            f"{what} must be a list or an array of integers, not one {type(values).__name__}"
            f" of {getattr(values, 'dtype', 'others')}"
        )
    return plain


def words(values: Sequence[Any], what: str, code: str = "L") -> "array[int]":
    """A sequence of integers as 64-bit words, or those of another code of arrays."""
    values = _integers(values, what)
    try:
        return array(code, values)
    except TypeError as e:
        raise TypeError(f"{what} must be integers: {e}") from None
    except OverflowError:
        most = (1 << 8 * array(code).itemsize) - 1
        for value in values:
            integer(value, what, most)
        raise


def local_words(
    values: Sequence[Any], lengths: Optional[Sequence[int]], written: bool
) -> Tuple["array[int]", "array[int]", Optional[List[Any]]]:
    """Local addresses, their lengths, and what must be kept while they are used."""
    values = _integers(values, "local pieces")
    if set(map(type, values)) <= {int} and lengths is not None:
        return words(values, "local addresses"), words(lengths, "lengths"), None
    if lengths is not None and len(_integers(lengths, "lengths")) != len(values):
        raise ValueError(f"{len(values)} local pieces and {len(lengths)} lengths")
    addresses, sizes, keep = array("L"), array("L"), []
    for i, value in enumerate(values):
        where, length = sized_span(value, None if lengths is None else lengths[i], written)
        addresses.append(where.address)
        sizes.append(length)
        if where.keep is not None:
            keep.append(where.keep)
    return addresses, sizes, keep


class Numbers(NamedTuple):
    """Where an array of integers of 32 or 64 bits is. `keep` must be held while it is used."""

    address: int
    size: int
    bits: int
    keep: Any


def numbers(values: Any, what: str) -> Numbers:
    """An array of integers as it is, without a copy; a list as 64-bit words."""
    kinds = str(getattr(values, "dtype", "")) or getattr(values, "typecode", "")
    kinds = kinds or str(getattr(values, "format", ""))
    if not kinds:
        table = words(values, what)
        return Numbers(table.buffer_info()[0], len(table), 64, table)
    where = span(values)
    if hasattr(values, "element_size"):
        size = values.element_size()
    else:
        size = getattr(values, "itemsize", None)
    if where.device:
        raise BufferError(f"{what}: {kind(values)} is in memory of a device; use .cpu()")
    if not ("int" in kinds or kinds in tuple("iIlLqQ")) or size not in (4, 8):
        raise TypeError(f"{what} must be integers of 32 or 64 bits, not {kinds}")
    if where.nbytes is None:
        raise TypeError(f"{what} must be a list or an array of integers, not {kind(values)}")
    return Numbers(where.address, where.nbytes // size, 8 * size, where.keep)
