# SPDX-License-Identifier: Apache-2.0
"""Turns an int8.safetensors of octet into an ONNX model in QDQ form, so that other runtimes can be timed on the same network.

Only for timing: a residual addition needs one more quantized tensor in QDQ form than octet stores; its scale is taken from the sum's.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Writer:
    """Collects ONNX nodes and constants for one checkpoint (as tools/verify_checkpoint.py reads it)."""

    def __init__(self, checkpoint):
        self.nodes_in, self.outputs = checkpoint["nodes"], checkpoint["outputs"]
        self.nodes, self.constants, self.count = [], [], 0

    def name(self, stem):
        self.count += 1
        return f"{stem}_{self.count}"

    def constant(self, array):
        name = self.name("c")
        self.constants.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def add(self, op, inputs, **attributes):
        output = self.name(op)
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def qparams(self, node):
        q = node["out"]
        kind = np.int8 if q["quant_min"] < 0 else np.uint8
        return self.constant(np.float32(q["scale"])), self.constant(kind(q["zero_point"]))

    def clamp(self, value, node):
        """The bounds of a node's codes, as far as QuantizeLinear does not saturate there: ReLU on edges with negative values, ReLU6."""
        q, (lowest, highest) = node["out"], node["clamp"]
        stored = np.iinfo(np.int8 if q["quant_min"] < 0 else np.uint8)
        if highest == stored.max and lowest == stored.min:
            return value
        if highest == stored.max and lowest == q["zero_point"]:
            return self.add("Relu", [value])
        bounds = [self.constant(np.float32(q["scale"] * (code - q["zero_point"]))) for code in (lowest, highest)]
        return self.add("Clip", [value, *bounds])

    def quantize(self, value, node):
        return self.add("QuantizeLinear", [value, *self.qparams(node)])

    def dequantize(self, codes, node):
        return self.add("DequantizeLinear", [codes, *self.qparams(node)])

    def weights(self, node, x_scale, y_scale):
        """Dequantized weight and bias of a convolution or linear, BatchNorm inside the scales."""
        scale = (node["multiplier"].astype(np.float64) * y_scale / x_scale).astype(np.float32)
        scale = np.maximum(scale, 1e-12)
        weight = node["weight"]
        if weight.ndim == 4:
            weight = weight.transpose(0, 3, 1, 2)
        zero = self.constant(np.zeros(len(scale), np.int8))
        w = self.add("DequantizeLinear", [self.constant(weight), self.constant(scale), zero], axis=0)
        bias = np.rint(node["bias"].astype(np.float64) * y_scale / (x_scale * scale.astype(np.float64)))
        bias = np.clip(bias, -2**30, 2**30).astype(np.int32)
        b = self.add("DequantizeLinear", [self.constant(bias), self.constant((x_scale * scale).astype(np.float32)),
                                          self.constant(np.zeros(len(scale), np.int32))], axis=0)
        return w, b

    def curve(self, text, x):
        """A lookup's function as runtimes know it: "silu", "leaky_relu 0.01"."""
        name, *slope = text.split()
        if name == "silu":
            return self.add("Mul", [x, self.add("Sigmoid", [x])])
        if name == "hard_sigmoid":
            return self.add("HardSigmoid", [x], alpha=1 / 6, beta=0.5)
        if name == "leaky_relu":
            return self.add("LeakyRelu", [x], alpha=float(slope[0]))
        if name == "gelu":
            erf = self.add("Erf", [self.add("Mul", [x, self.constant(np.float32(np.sqrt(0.5)))])])
            return self.add("Mul", [self.add("Mul", [x, self.constant(np.float32(0.5))]),
                                    self.add("Add", [erf, self.constant(np.float32(1))])])
        if name == "mish":
            return self.add("Mul", [x, self.add("Tanh", [self.add("Softplus", [x])])])
        operators = {"hard_swish": "HardSwish", "sigmoid": "Sigmoid", "tanh": "Tanh", "softplus": "Softplus", "elu": "Elu"}
        return self.add(operators[name], [x])

    def convert(self):
        edges = []  # the float value of each node, after its dequantize
        for node in self.nodes_in:
            edges.append(self.emit(node, edges))
        (output,) = self.outputs  # a classifier
        return edges[output]

    def emit(self, node, edges):
        op, inputs = node["op"], node["inputs"]
        x = edges[inputs[0]] if inputs else "images"
        w = node.get("window", {})
        pool = {}
        if w:
            pool = dict(kernel_shape=w["kernel"], strides=w["stride"], pads=w["pad"], dilations=w["dilation"])
        if op == "flatten":
            return self.add("Flatten", [x])
        if op in ("conv2d", "linear"):
            x_scale = self.nodes_in[inputs[0]]["out"]["scale"]
            y_scale = 1.0 if node["float_output"] else node["out"]["scale"]
            weight, bias = self.weights(node, x_scale, y_scale)
            if op == "linear":
                y = self.add("Gemm", [self.add("Flatten", [x]), weight, bias], transB=1)
            else:
                y = self.add("Conv", [x, weight, bias], group=node["groups"], **pool)
            if len(inputs) == 2:
                y = self.dequantize(self.quantize(y, node), node)
                y = self.add("Add", [y, edges[inputs[1]]])
        elif op == "input":
            y = x
        elif op == "add":
            y = self.add("Add", [x, edges[inputs[1]]])
        elif op == "mul":
            y = self.add("Mul", [x, edges[inputs[1]]])
        elif op == "concat":
            y = self.add("Concat", [edges[i] for i in inputs], axis=1)
        elif op == "max_pool":
            y = self.add("MaxPool", [x], **pool)
        elif op == "avg_pool":
            pool.pop("dilations")
            y = self.add("AveragePool", [x], count_include_pad=1, **pool)
        elif op == "global_avg_pool":
            y = self.add("GlobalAveragePool", [x])
        elif op == "requantize":
            y = x
        elif op == "lookup":
            y = self.curve(node["function"], x)
        else:
            raise ValueError(f"{node['name']}: no QDQ form for {op}")
        if node["float_output"]:
            return y
        return self.dequantize(self.quantize(self.clamp(y, node), node), node)


def to_onnx(checkpoint, batch):
    """An onnx.ModelProto for float32 images [batch, C, H, W]."""
    writer = Writer(checkpoint)
    output = writer.convert()
    c, h, w = checkpoint["nodes"][0]["shape"]
    graph = helper.make_graph(
        writer.nodes, checkpoint["name"],
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, c, h, w])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], writer.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
