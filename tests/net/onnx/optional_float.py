# SPDX-License-Identifier: Apache-2.0
"""Cases of the operators of float networks that have weights or windows: Conv, ConvTranspose, Gemm, BatchNormalization, pools, Pad.

What octet refuses on purpose is a case too: it must be refused by name, and never be computed as something else.
"""
import numpy as np
from judge import Case, model, noise, tensor
from onnx.helper import make_node as node

OPERATORS = {"Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization", "MaxPool", "AveragePool", "GlobalAveragePool", "Pad", "ReduceMean"}
EXEMPT = {}

SHAPE = (4, 9, 7)
NEWEST = 23


def weights(*shape, seed=2):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def one(name, nodes, tensors=(), shape=SHAPE, opset=17, batch="N", **more):
    """A case whose output is "y"."""
    return Case(name, model(nodes, list(tensors), "y", shape, opset, batch), noise(shape), **more)


def conv(name, inputs=("x", "w"), shape=(6, 4, 3, 2), opset=17, differs_from="conv", refused="", **attributes):
    tensors = [tensor("w", weights(*shape)), tensor("b", weights(6, seed=3))]
    return one(name, [node("Conv", list(inputs), ["y"], **attributes)], tensors, opset=opset, differs_from=differs_from, refused=refused)


def convolutions():
    yield conv("conv", differs_from="")
    yield conv("conv_bias", ("x", "w", "b"))
    yield conv("conv_group", shape=(6, 2, 3, 2), group=2)
    yield conv("conv_strides", strides=[2, 1])
    yield conv("conv_pads", pads=[1, 0, 2, 1])
    yield conv("conv_dilations", dilations=[2, 3])
    yield conv("conv_kernel_shape", kernel_shape=[3, 2], differs_from="")
    yield conv("conv_notset", auto_pad="NOTSET", differs_from="")
    yield conv("conv_valid", auto_pad="VALID", differs_from="")
    for opset in (11, NEWEST):
        yield conv(f"conv_same_upper_{opset}", auto_pad="SAME_UPPER", strides=[2, 2], opset=opset)
        yield conv(f"conv_same_lower_{opset}", auto_pad="SAME_LOWER", strides=[2, 2], opset=opset, differs_from=f"conv_same_upper_{opset}")
    yield conv("conv_other_kernel_shape", kernel_shape=[2, 3], refused="kernel_shape 2x3 differs from the weights' 3x2", differs_from="")

    def up(name, kernel=2, refused="", differs_from="up", inputs=("x", "w"), opset=17, **attributes):
        tensors = [tensor("w", weights(4, 3, kernel, kernel)), tensor("b", weights(3, seed=3))]
        return one(name, [node("ConvTranspose", list(inputs), ["y"], **attributes)], tensors, refused=refused, differs_from=differs_from, opset=opset)

    yield up("up", strides=[2, 2], differs_from="")
    yield up("up_bias", strides=[2, 2], inputs=("x", "w", "b"))
    yield up("up_without_strides", kernel=1)
    yield up("up_pads", kernel=4, strides=[2, 2], pads=[1, 1, 1, 1])
    yield up("up_output_padding", kernel=3, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    yield up("up_kernel_shape", strides=[2, 2], kernel_shape=[2, 2], differs_from="")
    yield up("up_valid", strides=[2, 2], auto_pad="VALID", differs_from="")
    yield up("up_no_group", strides=[2, 2], group=1, dilations=[1, 1], opset=22, differs_from="")
    yield up("up_other_groups", strides=[2, 2], group=3, refused="3 groups of 4 channels", differs_from="")
    yield up("up_dilations", strides=[2, 2], dilations=[2, 2], refused="dilations; expected none", differs_from="")
    yield up("up_output_shape_too_large", strides=[2, 2], output_shape=[20, 14], refused="more outputs than its window reaches", differs_from="")


def linears():
    row = node("Flatten", ["x"], ["row"])

    def gemm(name, c=None, transposed=False, inputs=3, differs_from="float_gemm", refused="", shape=(4, 1, 1), opset=17, batch="N", **attributes):
        matrix = weights(4, 5)
        tensors = [tensor("w", matrix.T if transposed else matrix), tensor("c", weights(5, seed=3) if c is None else c)]
        layer = node("Gemm", ["row", "w", "c"][:inputs], ["y"], **attributes)
        return one(name, [row, layer], tensors, shape, opset, batch, differs_from=differs_from, refused=refused)

    yield gemm("float_gemm", differs_from="")
    yield gemm("float_gemm_without_c", inputs=2)
    yield gemm("float_gemm_trans_b", transposed=True, transB=1, differs_from="")
    yield gemm("float_gemm_trans_b_0", transB=0, differs_from="")
    yield gemm("float_gemm_trans_a_0", transA=0, differs_from="")
    yield gemm("float_gemm_trans_a", transA=1, refused="transA; expected the images as rows", differs_from="")
    yield gemm("float_gemm_alpha", alpha=0.3)
    yield gemm("float_gemm_beta", beta=-0.7)
    yield gemm("float_gemm_beta_without_c", inputs=2, beta=-0.7, differs_from="float_gemm")
    for opset in (11, NEWEST):
        yield gemm(f"float_gemm_c_a_number_{opset}", c=np.float32(0.6), opset=opset)
        yield gemm(f"float_gemm_c_a_row_{opset}", c=weights(1, 5, seed=4), opset=opset)
    yield gemm("float_gemm_c_a_column", c=weights(2, 1, seed=4), batch=2, refused="input 'c' is [2, 1]", differs_from="")
    square = [row, node("Gemm", ["row", "w", "c"], ["y"])]
    yield Case("float_gemm_c_a_column_of_as_many_images", model(square, [tensor("w", weights(4, 5)), tensor("c", weights(5, 1))], "y", (4, 1, 1), batch=5),
               noise((4, 1, 1), images=5), refused="adds [5, 1], which is not one number an output")
    yield one("matmul", [row, node("MatMul", ["row", "w"], ["y"])], [tensor("w", weights(4, 5))], (4, 1, 1))

    def norm(name, opset=17, differs_from="norm", refused="", reference_fault="", **attributes):
        tensors = [tensor("scale", weights(4)), tensor("bias", weights(4, seed=3)), tensor("mean", weights(4, seed=4)),
                   tensor("var", np.abs(weights(4, seed=5)) / 50)]
        layer = node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], ["y"], **attributes)
        return one(name, [layer], tensors, opset=opset, differs_from=differs_from, refused=refused, reference_fault=reference_fault)

    yield norm("norm_11", 11, differs_from="", reference_fault="takes a momentum for training mode before opset 14")
    yield norm("norm_14", 14, differs_from="")
    yield norm("norm", differs_from="")
    yield norm("norm_epsilon", epsilon=0.01)
    yield norm("norm_momentum", momentum=0.5, differs_from="")
    yield norm("norm_training_mode_0", training_mode=0, differs_from="")


def pools():
    def pool(operator, name, differs_from=None, refused="", opset=17, shape=SHAPE, kernel=(3, 2), reference_fault="",
             **attributes):
        kind = "max" if operator == "MaxPool" else "avg"
        base = f"{kind}" if differs_from is None and name else differs_from or ""
        layer = node(operator, ["x"], ["y"], kernel_shape=list(kernel), **attributes)
        return one(f"{kind}_{name}" if name else kind, [layer], shape=shape, opset=opset, differs_from="" if refused else base,
                   refused=refused, reference_fault=reference_fault)

    for operator in ("MaxPool", "AveragePool"):
        yield pool(operator, "")
        yield pool(operator, "strides", strides=[2, 1])
        yield pool(operator, "valid", auto_pad="VALID", differs_from="")
        yield pool(operator, "notset", auto_pad="NOTSET", differs_from="")
        yield pool(operator, "ceil_mode_0", ceil_mode=0, strides=[2, 2])
        yield pool(operator, "ceil_mode_that_hangs_nowhere", ceil_mode=1, strides=[3, 5], differs_from=f"{'max' if operator == 'MaxPool' else 'avg'}")
        yield pool(operator, "no_dilations", opset=NEWEST, differs_from="")
        yield pool(operator, "dilations_1", dilations=[1, 1], opset=19, differs_from="")
        yield pool(operator, "dilations", dilations=[2, 1], opset=19, refused="dilation 2: pooling windows have none")

    for opset in (11, 12, 17, NEWEST):
        yield pool("MaxPool", f"ceil_mode_{opset}", ceil_mode=1, strides=[2, 2], opset=opset)
    yield pool("MaxPool", "ceil_mode_by_two", ceil_mode=1, kernel=(3, 3), strides=[3, 3], shape=(4, 10, 8), pads=[0, 0, 0, 0])
    yield pool("MaxPool", "ceil_mode_and_pads", ceil_mode=1, kernel=(3, 3), strides=[2, 2], pads=[1, 1, 1, 1], shape=(4, 8, 10))
    yield pool("MaxPool", "pads", pads=[1, 0, 1, 1], reference_fault="takes pads that differ from side to side in another order")
    yield pool("MaxPool", "pads_0", pads=[0, 0, 0, 0], differs_from="")
    yield pool("MaxPool", "storage_order", storage_order=1, differs_from="")
    yield pool("MaxPool", "storage_order_0", storage_order=0, differs_from="")
    yield pool("MaxPool", "same_upper", auto_pad="SAME_UPPER", strides=[2, 2], kernel=(2, 2))
    yield pool("MaxPool", "same_lower", auto_pad="SAME_LOWER", strides=[2, 2], kernel=(2, 2), differs_from="max_same_upper",
               reference_fault="gives fewer outputs than SAME has")

    yield pool("AveragePool", "counted_pads", pads=[1, 0, 1, 1], count_include_pad=1)
    yield pool("AveragePool", "uncounted_pads", pads=[1, 0, 1, 1], count_include_pad=0, refused="count_include_pad 0 with padding")
    yield pool("AveragePool", "pads", pads=[1, 0, 1, 1], refused="count_include_pad 0 with padding")
    yield pool("AveragePool", "no_pads", pads=[0, 0, 0, 0], count_include_pad=0, differs_from="")
    yield pool("AveragePool", "same_upper", auto_pad="SAME_UPPER", refused="count_include_pad 0 with padding")
    yield pool("AveragePool", "same_that_pads_nothing", auto_pad="SAME_UPPER", kernel=(1, 1), strides=[2, 2])
    yield pool("AveragePool", "ceil_mode", ceil_mode=1, kernel=(2, 2), strides=[2, 2], refused="ceil_mode with a last window that hangs over")
    yield one("global", [node("GlobalAveragePool", ["x"], ["y"])])

    def mean(name, axes, opset=17, shape=SHAPE, refused="", differs_from="", by_input=None, **attributes):
        by_input = opset >= 18 if by_input is None else by_input
        given = {} if axes is None or by_input else {"axes": axes}
        inputs = ["x"] + (["axes"] if axes is not None and by_input else [])
        tensors = [tensor("axes", axes, np.int64)] if axes is not None and by_input else []
        return one(name, [node("ReduceMean", inputs, ["y"], **given, **attributes)], tensors, shape, opset, refused=refused, differs_from=differs_from)

    for opset in (11, 13, 18, NEWEST):
        yield mean(f"mean_{opset}", [2, 3], opset)
        yield mean(f"mean_keepdims_1_{opset}", [-1, -2], opset, keepdims=1)
        yield mean(f"mean_keepdims_0_{opset}", [2, 3], opset, keepdims=0)
        yield mean(f"mean_of_all_{opset}", None, opset, refused="takes the mean over axes []")
        yield mean(f"mean_of_channels_{opset}", [1], opset, refused="takes the mean over the channels, as in a LayerNormalization")
    noop = [node("ReduceMean", ["x"], ["same"], noop_with_empty_axes=1), node("Relu", ["same"], ["y"])]
    yield one("mean_of_none", noop, opset=18)
    yield mean("mean_noop_0", [2, 3], 18, noop_with_empty_axes=0)


def pads():
    def padded(name, amounts, value=None, axes=None, opset=17, refused="", differs_from="", mode=None, operator="Conv"):
        inputs = ["x", "pads"] + (["value" if value is not None else ""] if value is not None or axes is not None else []) + (["axes"] if axes is not None else [])
        tensors = [tensor("pads", amounts, np.int64), tensor("w", weights(6, 4, 3, 2))]
        tensors += [] if value is None else [tensor("value", np.float32(value))]
        tensors += [] if axes is None else [tensor("axes", axes, np.int64)]
        layer = node("Conv", ["p", "w"], ["y"]) if operator == "Conv" else node("AveragePool", ["p"], ["y"], kernel_shape=[3, 3])
        given = {} if mode is None else {"mode": mode}
        return one(name, [node("Pad", inputs, ["p"], **given), layer], tensors, opset=opset, refused=refused, differs_from=differs_from)

    around = [0, 0, 1, 0, 0, 0, 1, 1]
    for opset in (11, 13, 18, NEWEST):
        yield padded(f"pad_{opset}", around, opset=opset)
        yield padded(f"pad_zero_{opset}", around, 0, opset=opset)
        yield padded(f"pad_one_{opset}", around, 1, opset=opset, refused="pads with another value than 0")
    yield padded("pad_average", around, operator="AveragePool")
    yield padded("pad_constant", around, mode="constant")
    for mode in ("reflect", "edge"):
        yield padded(f"pad_{mode}", around, mode=mode, refused=f"mode '{mode}'; expected zeros (constant)")
    for opset in (18, NEWEST):
        yield padded(f"pad_axes_{opset}", [1, 2, 0, 1], axes=[2, -1], opset=opset, differs_from="pad_average")
        yield padded(f"pad_axes_in_turns_{opset}", [2, 1, 1, 0], axes=[3, 2], opset=opset, differs_from="")
    channels = [node("Pad", ["x", "pads"], ["y"])]
    yield one("pad_channels", channels, [tensor("pads", [0, 2, 0, 0, 0, 2, 0, 0], np.int64)])
    yield one("pad_channels_behind", channels, [tensor("pads", [0, 0, 0, 0, 0, 2, 0, 0], np.int64)], refused="as many channels before as behind")


def cases():
    for part in (convolutions, linears, pools, pads):
        yield from part()
