# SPDX-License-Identifier: Apache-2.0
"""Cases of other operators as they stand in quantized networks: an Add of biases behind MatMul, Clip of codes, bounds, factors, and what is
no QDQ form at all. The scales are as optional_qdq.py says."""
import numpy as np
from judge import Case, pixels, tensor
from onnx.helper import make_node as node
from optional_qdq import BIAS, CHANNELS, CONV1, CONV2, FIRST, IMAGE, MID, SECOND, X, X_SCALE, between, case, codes, network, pair, weights

OPERATORS = set()  # their own options are the float networks' business
EXEMPT = {}

ROW = [node("Flatten", ["image"], ["row"], name="flatten")], []
COLUMNS = weights("w", codes(192, 5), np.linspace(0.5, 2, 5) / 100, np.zeros(5), axis=1)
MATMUL = [node("MatMul", ["row", "w"], ["mm"], name="dense/MatMul")], []
BIASES = np.array([-3.1, 2.2, 0, 4.3, -1], np.float32)


def sums():
    """A classifier as tf2onnx writes it: quantizers give the product codes of its own."""
    product = pair("mm", "mmq", 0.0173, 120)
    for name, shape, inputs in (("row", (5,), ["mmq", "B"]), ("matrix", (1, 5), ["mmq", "B"]), ("first", (5,), ["B", "mmq"])):
        add = [node("Add", inputs, ["y"], name="dense/BiasAdd")], [tensor("B", BIASES.reshape(shape))]
        yield case(f"biases_behind_codes_{name}", network(IMAGE, ROW, COLUMNS, MATMUL, product, add))
    coded = weights("B", np.array([-100, 70, 0, 127, -33], np.int8), 0.0371)
    add = [node("Add", ["mmq", "B"], ["y"], name="dense/BiasAdd")], []
    yield case("biases_of_codes_behind_codes", network(IMAGE, ROW, COLUMNS, MATMUL, product, coded, add))
    plain = [node("Add", ["mm", "B"], ["y"], name="dense/BiasAdd")], []
    yield case("biases_behind_reals", network(IMAGE, ROW, COLUMNS, MATMUL, coded, plain))
    inner = [node("Add", ["mmq", "B"], ["a"], name="dense/BiasAdd"), node("Relu", ["a"], ["r"])], []
    last = weights("w2", codes(5, 4), 3 / 128, 0)
    yield case("biases_inside", network(IMAGE, ROW, COLUMNS, MATMUL, product, coded, inner, pair("r", "m", 0.0231, 0), last,
                                        ([node("MatMul", ["m", "w2"], ["y"])], [])))
    shifts = [node("Add", ["m", "B"], ["s"], name="BiasAdd")], [tensor("B", np.linspace(-1, 1, 6).reshape(6, 1, 1))]
    mid = pair("a", "m", MID, 120)
    yield case("biases_of_pictures", network(IMAGE, FIRST, BIAS, CONV1, mid, shifts, pair("s", "n", 0.0137, 100), SECOND,
                                             ([node("Conv", ["n", "w2"], ["y"])], [])))
    one = weights("w", codes(192, 1), 1 / 128, 0)
    yield case("bias_of_one_class", network(IMAGE, ROW, one, MATMUL, product, ([node("Add", ["mmq", "B"], ["y"])], [tensor("B", [1.7])])))
    moved = [node("Add", ["row", "B"], ["s"], name="add")], [tensor("B", np.linspace(-1, 1, 192))]
    yield case("biases_behind_a_flatten", network(IMAGE, ROW, moved, pair("s", "n", 0.0137, 100), COLUMNS,
                                                  ([node("MatMul", ["n", "w"], ["y"])], [])),
               refused="stands behind a Flatten of several pixels")
    twice = [node("Concat", ["row", "row"], ["c"], name="concat", axis=1)], []
    yield case("concat_behind_a_flatten", network(IMAGE, ROW, twice, pair("c", "n", X_SCALE, 0), weights("w", codes(384, 5), 1 / 128, 0),
                                                  ([node("MatMul", ["n", "w"], ["y"])], [])),
               refused="stands behind a Flatten of several pixels")


def clips():
    """Brevitas bounds codes to fewer bits, or to a narrow range."""
    def clipped(name, low, high, dtype, zero, **more):
        (q, dq), tensors = pair("a", "m", MID, zero, dtype)
        dq.input[0] = "m.c"
        inputs = ["m.q", "m.low" if low is not None else "", "m.high" if high is not None else ""]
        bounds = [tensor(f"m.{end}", limit, dtype) for end, limit in (("low", low), ("high", high)) if limit is not None]
        return case(name, between(([q, node("Clip", inputs, ["m.c"], name="clip"), dq], tensors + bounds)), **more)

    yield clipped("codes_to_narrow", -127, 127, np.int8, 0)
    yield clipped("codes_to_four_bits", -8, 7, np.int8, 0, differs_from="codes_to_narrow")
    yield clipped("codes_from_a_lowest", 20, None, np.uint8, 30, differs_from="codes_to_a_highest")
    yield clipped("codes_to_a_highest", None, 90, np.uint8, 30)
    yield clipped("codes_without_bounds", None, None, np.uint8, 30, differs_from="codes_to_a_highest")
    (q, dq), tensors = pair("r", "w1", CHANNELS, np.zeros(6), np.int8, q={"axis": 0}, dq={"axis": 0})
    dq.input[0] = "w1.c"
    bounded = [q, node("Clip", ["w1.q", "low", "high"], ["w1.c"]), dq]
    reals = np.random.default_rng(6).uniform(-0.3, 0.3, (6, 3, 3, 3)).astype(np.float32)
    tensors += [tensor("r", reals), tensor("low", -7, np.int8), tensor("high", 7, np.int8)]
    yield case("weights_to_four_bits", network(IMAGE, (bounded, tensors), BIAS, CONV1, output="a"))
    (q, dq), tensors = pair("a", "m", MID, 0, np.int8)
    other = node("DequantizeLinear", ["m.c", "m.s", "m.z"], ["n"])
    two = [q, node("Clip", ["m.q", "low", "high"], ["m.c"]), dq, other, node("Conv", ["n", "w2"], ["z"]), node("Add", ["z", "y"], ["sum"])]
    yield case("codes_with_and_without_bounds",
               network(IMAGE, FIRST, BIAS, CONV1, SECOND, (two[:4], tensors + [tensor("low", -8, np.int8), tensor("high", 7, np.int8)]),
                       CONV2, (two[4:], []), output="sum"), refused="reads codes that another DequantizeLinear reads with other bounds")


def bounds():
    """Relu and Clip before a QuantizeLinear."""
    def bounded(name, nodes, tensors=(), **more):
        return case(name, between((nodes + pair("r", "m", MID, 100)[0], list(tensors) + pair("r", "m", MID, 100)[1])), **more)

    low, high = tensor("low", -0.31), tensor("high", 0.77)
    yield bounded("relu", [node("Relu", ["a"], ["r"])])
    yield bounded("clip_to_both", [node("Clip", ["a", "low", "high"], ["r"])], [low, high], differs_from="relu")
    yield bounded("clip_from_a_lowest", [node("Clip", ["a", "low"], ["r"])], [low], differs_from="clip_to_both")
    yield bounded("clip_to_a_highest", [node("Clip", ["a", "", "high"], ["r"])], [high], differs_from="clip_from_a_lowest")
    yield bounded("clip_without_bounds", [node("Clip", ["a"], ["r"])], differs_from="clip_to_a_highest")


def layers():
    """Attributes of layers whose weights are codes."""
    def head(name, columns, biases=None, **attributes):
        given = ["row", "w"] + (["B"] if biases is not None else [])
        more = {key: attributes.pop(key) for key in ("refused", "differs_from") if key in attributes}
        tensors = [] if biases is None else [tensor("B", biases)]
        return case(name, network(IMAGE, ROW, columns, ([node("Gemm", given, ["y"], name="fc", **attributes)], tensors)), **more)

    yield head("gemm_columns", COLUMNS, BIASES)
    yield head("gemm_without_biases", COLUMNS, differs_from="gemm_columns")
    yield head("gemm_beta", COLUMNS, BIASES, beta=0.5, differs_from="gemm_columns")
    yield head("gemm_alpha", COLUMNS, BIASES, alpha=0.5, refused="alpha of quantized weights; expected 1")
    yield head("gemm_rows", weights("w", codes(192, 5).T.copy(), np.linspace(0.5, 2, 5) / 100, np.zeros(5), axis=0), BIASES, transB=1)
    far = np.random.default_rng(8).integers(0, 256, (192, 5)).astype(np.uint8)
    yield head("weights_far_from_their_zero_point", weights("w", far, 0.01, 100), BIASES, refused="weight_type=QuantType.QInt8")


def other_forms():
    """What quantizers write beside QDQ."""
    def form(name, nodes, refused):
        return case(name, network((nodes, [tensor("s", 0.1), tensor("z", 0, np.uint8)])), refused=refused)

    q = node("QuantizeLinear", ["x", "s", "z"], ["q"])
    dq = node("DequantizeLinear", ["r", "s", "z"], ["y"])
    operator = "octet does not read; it reads QDQ: quantize the float network by onnxruntime.quantization.quantize_static("
    dynamic = "a dynamically quantized network, whose scales follow from each image"
    microsofts = node("QLinearSoftmax", ["q", "s", "z", "s", "z"], ["r"], domain="com.microsoft")
    yield form("qlinear_softmax", [q, microsofts, dq], operator)
    yield form("conv_integer", [node("ConvInteger", ["x", "s"], ["y"])], dynamic)
    yield form("matmul_integer", [node("MatMulInteger", ["x", "s"], ["y"])], dynamic)
    yield form("dynamic_scales", [node("DynamicQuantizeLinear", ["x"], ["y", "ys", "yz"])], dynamic)


def as_float():
    """The same files read as float networks: what they are is said, and no command that would refuse them."""
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]),
             node("QLinearConv", ["q", "s", "z", "q", "s", "z", "s", "z"], ["r"]), node("DequantizeLinear", ["r", "s", "z"], ["y"])]
    yield Case("qlinear_conv_as_float", network((nodes, [tensor("s", 0.1), tensor("z", 0, np.uint8)])), X,
               refused="a quantized network; octet run and bench take it")
    yield Case("qdq_as_float", between(pair("a", "m", MID, 0)), X, refused="a quantized network; octet run and bench take it")
    x = pixels((4, 1, 1), seed=3)
    flat, columns = node("Flatten", ["x"], ["row"]), tensor("F", np.random.default_rng(4).standard_normal((4, 5)))
    for name, shape, first in (("row", (5,), False), ("matrix", (1, 5), True)):
        add = node("Add", ["B", "mm"] if first else ["mm", "B"], ["y"])
        part = [flat, node("MatMul", ["row", "F"], ["mm"]), add], [columns, tensor("B", BIASES.reshape(shape))]
        yield Case(f"float_biases_{name}", network(part, shape=(4, 1, 1)), x)


def cases():
    yield from sums()
    yield from clips()
    yield from bounds()
    yield from layers()
    yield from other_forms()
    yield from as_float()
