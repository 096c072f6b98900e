# SPDX-License-Identifier: Apache-2.0
"""Files that tests give octet, made without other packages: PNGs, and weights as torch.save writes them."""
import json
import pathlib
import pickle
import struct
import zipfile
import zlib


def png_file(rows, width, bits, colour):
    """A PNG of rows as they are stored, each without its filter; colour: 0 grey, 2 RGB."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, len(rows), bits, colour, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def png(values, bits=8):
    """A grey image of [rows][columns] as a file."""
    return png_file([struct.pack(f">{len(row)}{'B' if bits == 8 else 'H'}", *row) for row in values], len(values[0]), bits, 0)


def picture(seed, most):
    return [[(seed * 7919 + 31 * x * x + 17 * y * (x + 1)) % (most + 1) for x in range(8)] for y in range(8)]


def tensors_of(path):
    """Of a .safetensors file in float32: name -> (shape, bytes)."""
    data = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (t["shape"], data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]) for name, t in header.items()}


class _Tensors(pickle._Pickler):  # pylint: disable=protected-access
    """Writes a dictionary of tensors as torch.save does, without torch; `whole`: inside an object, as torch.save(model, FILE)."""

    def global_(self, module, name):
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())

    def tensor(self, key, shape, count):
        self.global_("torch._utils", "_rebuild_tensor_v2")
        self.write(pickle.MARK + pickle.MARK)
        self.save("storage")
        self.global_("torch", "FloatStorage")
        for value in (key, "cpu", count):
            self.save(value)
        self.write(pickle.TUPLE + pickle.BINPERSID)
        strides = [1] * len(shape)
        for i in range(len(shape) - 1, 0, -1):
            strides[i - 1] = strides[i] * shape[i]
        for value in (0, tuple(shape), tuple(strides), False):
            self.save(value)
        self.global_("collections", "OrderedDict")
        self.write(pickle.EMPTY_TUPLE + pickle.REDUCE + pickle.TUPLE + pickle.REDUCE)

    def dictionary(self, tensors, whole):
        self.write(pickle.PROTO + b"\x02")
        if whole:
            self.global_("models", "Net")
            self.write(pickle.EMPTY_TUPLE + pickle.NEWOBJ)
        self.write(pickle.EMPTY_DICT + pickle.MARK)
        for number, (name, (shape, data)) in enumerate(tensors.items()):
            self.save(name)
            self.tensor(str(number), shape, len(data) // 4)
        self.write(pickle.SETITEMS + (pickle.BUILD if whole else b"") + pickle.STOP)


def write_pth(path, tensors, whole=False, compression=zipfile.ZIP_STORED):
    pickled = path.with_suffix(".pkl")
    with open(pickled, "wb") as file:
        _Tensors(file, protocol=2).dictionary(tensors, whole)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled.read_bytes())
        archive.writestr("archive/version", "3\n")
        for number, (_, data) in enumerate(tensors.values()):
            archive.writestr(f"archive/data/{number}", data)
