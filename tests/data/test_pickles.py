"""A pickle is data here, never a program."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from data_formats import dump, pixels, write_cifar_python

from vmcr2.data import DataError, open_data
from vmcr2.data._pickles import read_pickle

STYLES = ["python2", "numpy1", "numpy2", "native-3", "native-4", "native-5"]


@pytest.mark.parametrize("style", STYLES)
def test_arrays_ints_strings_and_lists_are_read(style: str) -> None:
    table = {"data": pixels(3, 300), "labels": [1, 0, 250], "batch_label": "one of five", "names": ["a", "b"]}
    data = dump(table, style)
    spelling = {"python2": b"numpy.core.", "numpy1": b"numpy.core.", "numpy2": b"numpy._core."}.get(style, b"numpy")
    assert spelling in data
    loaded = read_pickle(data, "here")
    assert isinstance(loaded["data"], np.ndarray)
    assert loaded["data"].dtype == np.uint8
    assert np.array_equal(loaded["data"], table["data"])
    assert {key: loaded[key] for key in table if key != "data"} == {k: table[k] for k in table if k != "data"}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("kind", ["u1", "<i8", ">i4", "f4", "?"])
def test_number_types_orders_and_shapes(protocol: int, kind: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(kind)
    for value in (array, np.asfortranarray(array), array[:, 0]):
        loaded = read_pickle(pickle.dumps({"x": value}, protocol), "here")["x"]
        assert isinstance(loaded, np.ndarray)
        assert loaded.dtype == value.dtype
        assert np.array_equal(loaded, value)


def test_keys_may_be_bytes() -> None:
    assert read_pickle(pickle.dumps({b"labels": [1], 3: "dropped"}), "here") == {"labels": [1]}


def text(value: str) -> bytes:
    return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()


def call(module: str, name: str, *arguments: bytes) -> bytes:
    """The instructions for module.name(*arguments), name possibly dotted."""
    return text(module) + text(name) + b"\x93(" + b"".join(arguments) + b"tR"


def touch(path: Path) -> str:
    return f"open({str(path)!r}, 'w').close()"


def evil_npy(sentinel: Path) -> str:
    """A .npy file whose pickle touches the sentinel, for numpy.load."""
    path = sentinel.with_name("evil.npy")
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + _program(run_eval(sentinel)))
    return str(path)


def _program(body: bytes, protocol: int = 4) -> bytes:
    return bytes((0x80, protocol)) + body + b"."


def run_eval(sentinel: Path) -> bytes:
    return call("builtins", "eval", text(touch(sentinel)))


ATTACKS: dict[str, Callable[[Path], bytes]] = {
    "eval": run_eval,
    "exec": lambda s: call("builtins", "exec", text(touch(s))),
    "python 2 eval": lambda s: b"c__builtin__\neval\n(" + text(touch(s)) + b"tR",
    "inst": lambda s: b"(" + text(touch(s)) + b"ibuiltins\neval\n",
    "obj": lambda s: b"(cbuiltins\neval\n" + text(touch(s)) + b"o",
    "os.system": lambda s: call("os", "system", text(f": > '{s}'")),
    "posix.system": lambda s: call("posix", "system", text(f": > '{s}'")),
    "subprocess": lambda s: call("subprocess", "check_call", b"](" + text("touch") + text(str(s)) + b"e"),
    "getattr chain": lambda s: (
        call(
            "builtins",
            "getattr",
            call("builtins", "__import__", text("os")),
            text("system"),
        )
        + b"("
        + text(f": > '{s}'")
        + b"tR"
    ),
    "attrgetter": lambda s: (
        call("operator", "attrgetter", text("system"))
        + b"("
        + call("importlib", "import_module", text("os"))
        + b"tR("
        + text(f": > '{s}'")
        + b"tR"
    ),
    "numpy.load": lambda s: call("numpy", "load", text(evil_npy(s)), b"N\x88"),
    "numpy runstring": lambda s: call("numpy.testing", "runstring", text(touch(s)), b"}"),
    "numpy.f2py": lambda s: call("numpy.f2py.crackfortran", "myeval", text(touch(s)), b"}}"),
    "dotted name on an admitted class": lambda s: call(
        "numpy",
        "ndarray.tofile",
        call("numpy", "zeros", b"K\x01"),
        text(str(s)),
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_malicious_pickle_is_refused_and_does_not_run(tmp_path: Path, attack: str) -> None:
    sentinel = tmp_path / "sentinel"
    data = _program(b"}(" + text("data") + ATTACKS[attack](sentinel) + b"u", 2 if "python 2" in attack else 4)
    try:  # the stock loader runs it: the attack is a real one
        pickle.loads(data)
    except Exception as error:
        assert sentinel.exists(), error  # noqa: PT017
    assert sentinel.exists()
    sentinel.unlink()
    with pytest.raises(DataError, match=r"here names .* not data"):
        read_pickle(data, "here")
    assert not sentinel.exists()


@pytest.mark.parametrize("style", STYLES)
def test_a_malicious_batch_is_refused_by_name(tmp_path: Path, style: str) -> None:
    write_cifar_python(tmp_path, 10, style=style)
    sentinel, batch = tmp_path / "sentinel", tmp_path / "cifar-10-batches-py" / "data_batch_2"
    batch.write_bytes(_program(b"}(" + text("data") + run_eval(sentinel) + b"u"))
    source = open_data("cifar10", tmp_path)
    with pytest.raises(DataError, match=r"data_batch_2 names builtins\.eval"):
        source.train()
    assert not sentinel.exists()
    assert len(source.test().labels) == 4


DTYPE = (
    b"cnumpy\ndtype\n"
    + text("u1")
    + b"\x89\x88\x87R(K\x03"
    + text("|")
    + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
)
EMPTY = b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"


def array(shape: bytes, dtype: bytes, raw: bytes) -> bytes:
    return EMPTY + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb"


ABUSES = {
    "calling the array type": call("numpy", "ndarray", b"K\x01\x85"),
    "making an object of an admitted function": b"c_codecs\nencode\n)\x81",
    "replacing an admitted function": b"c_codecs\nencode\nN}(" + text("_call") + b"Nu\x86b",
    "state for an admitted function": b"cnumpy._core.multiarray\n_reconstruct\n}(" + text("x") + b"Nub",
    "another codec": call("_codecs", "encode", text("abc"), text("rot13")),
    "encoding what is not text": call("_codecs", "encode", b"K\x01", text("latin1")),
    "objects": array(b"K\x01\x85", b"cnumpy\ndtype\n" + text("O8") + b"\x89\x88\x87R", b"](K\x01e"),
    "records": call("numpy", "dtype", text("u1,u1")),
    "a shape beyond the bytes": array(b"J\xff\xff\xff\x7f\x85", DTYPE, b"C\x01a"),
    "a negative shape": array(b"J\xff\xff\xff\xff\x85", DTYPE, b"C\x01a"),
    "a list for bytes": array(b"K\x01\x85", DTYPE, b"](K\x01e"),
    "no dtype": array(b"K\x01\x85", text("u1"), b"C\x01a"),
    "a persistent id": b"Psomewhere\n",
    "an extension code": b"\x82\x01",
    "an unhashable key": b"}(]K\x01u",
    "no dictionary": b"](K\x01e",
}


@pytest.mark.parametrize("abuse", ABUSES)
def test_abuse_of_what_is_admitted_is_refused(abuse: str) -> None:
    good = {"data": pixels(2, 5), "labels": [3]}
    body = ABUSES[abuse]
    with pytest.raises(DataError, match=r"^here "):
        read_pickle(_program(body if abuse == "no dictionary" else b"}(" + text("data") + body + b"u"), "here")
    after = read_pickle(pickle.dumps(good, 2), "here")  # and it left nothing behind
    assert np.array_equal(np.asarray(after["data"]), good["data"])


def test_the_abuses_start_from_a_valid_array() -> None:
    data = _program(b"}(" + text("data") + array(b"K\x02\x85", DTYPE, b"C\x02ab") + b"u")
    assert np.asarray(read_pickle(data, "here")["data"]).tolist() == [97, 98]
    assert np.asarray(pickle.loads(data)["data"]).tolist() == [97, 98]


@pytest.mark.parametrize("style", STYLES)
def test_a_pickle_cut_anywhere_is_an_error(style: str) -> None:
    data = dump({"data": pixels(1, 20), "labels": [1, 2]}, style)
    for end in range(len(data)):
        with pytest.raises(DataError, match="here "):
            read_pickle(data[:end], "here")


WRONG = {
    "no pixels": ({"labels": [1]}, "no array 'data'"),
    "pixels of another width": ({"data": pixels(1, 3071), "labels": [1]}, "no array 'data'"),
    "pixels of another type": ({"data": pixels(1, 3072).astype(np.int64), "labels": [1]}, "no array 'data'"),
    "no labels": ({"data": pixels(1, 3072)}, "no list 'labels'"),
    "labels of text": ({"data": pixels(1, 3072), "labels": ["1"]}, "no list 'labels'"),
    "a truth for a label": ({"data": pixels(1, 3072), "labels": [True]}, "no list 'labels'"),
    "a huge label": ({"data": pixels(1, 3072), "labels": [2**70]}, "no list 'labels'"),
    "fractions": ({"data": pixels(1, 3072), "labels": np.ones(1)}, "no list 'labels'"),
    "too many labels": ({"data": pixels(1, 3072), "labels": [1, 2]}, "1 images but 2 labels"),
    "a label out of range": ({"data": pixels(1, 3072), "labels": [10]}, "label 10"),
    "a negative label": ({"data": pixels(1, 3072), "labels": [-1]}, "label -1"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_batch_is_named(tmp_path: Path, wrong: str) -> None:
    table, message = WRONG[wrong]
    write_cifar_python(tmp_path, 10)
    batch = tmp_path / "cifar-10-batches-py" / "test_batch"
    batch.write_bytes(pickle.dumps(table))
    with pytest.raises(DataError, match=message) as caught:
        open_data("cifar10", tmp_path).test()
    assert str(batch) in str(caught.value)


def test_labels_may_be_an_array(tmp_path: Path) -> None:
    write_cifar_python(tmp_path, 10)
    batch = tmp_path / "cifar-10-batches-py" / "test_batch"
    batch.write_bytes(pickle.dumps({"data": pixels(2, 3072), "labels": np.array([9, 0])}))
    assert open_data("cifar10", tmp_path).test().labels.tolist() == [9, 0]
