# SPDX-License-Identifier: Apache-2.0
"""torchvision's networks and Ultralytics' detectors as ONNX, by both of PyTorch's exporters, for import_table.py.

Needs torch, torchvision, onnx and onnxscript, for yolov8n, yolo11n and yolo26n ultralytics (random weights from its YAML files; the
head gives each scale's boxes and classes as they come from its convolutions). yolox_nano reads the file $YOLOX_ONNX and is cut before
the boxes are put together; the rest is what stays outside.
Weights are random by seed, BatchNorm's factors too, and its statistics are those of two random pictures: a mistake in them shows, and
activations neither vanish nor explode on their way.
"""
import os

import onnx
import torch
import torchvision

NETWORKS = {  # name: pixels
    "alexnet": 224, "vgg16_bn": 224, "resnet18": 224, "resnet50": 224, "resnext50_32x4d": 224, "wide_resnet50_2": 224,
    "squeezenet1_1": 224, "googlenet": 224, "inception_v3": 299, "densenet121": 224, "mobilenet_v2": 224,
    "mobilenet_v3_large": 224, "mobilenet_v3_small": 224, "mnasnet1_0": 224, "shufflenet_v2_x1_0": 224,
    "regnet_y_400mf": 224, "efficientnet_b0": 224, "fcn_resnet50": 128, "deeplabv3_resnet50": 128,
    "ssdlite320_backbone": 320, "yolov8n": 320, "yolo11n": 320, "yolo26n": 320}
YOLOX = {"yolox_nano": 416}  # not exported here
YOLOX_OUTPUTS = ["onnx::Shape_1066", "onnx::Shape_1108", "output.1"]  # each scale's boxes, objectness and classes
ALL = NETWORKS | YOLOX
EXPORTERS = ("torchscript", "dynamo")


class Take(torch.nn.Module):
    def __init__(self, key):
        super().__init__()
        self.key = key

    def forward(self, x):
        return x[self.key]


class Values(torch.nn.Module):
    def forward(self, x):
        return tuple(x.values())


def raw_detector(name):
    from ultralytics.nn import tasks

    def scales(head, x):
        boxes, classes = (head.one2one_cv2, head.one2one_cv3) if head.end2end else (head.cv2, head.cv3)
        return tuple(torch.cat((boxes[i](x[i]), classes[i](x[i])), 1) for i in range(head.nl))

    model = tasks.DetectionModel(f"{name}.yaml", verbose=False)
    head = model.model[-1]
    head.forward = lambda x: scales(head, x)
    return model


def network(name):
    torch.manual_seed(1)
    if name.startswith("yolo"):
        model = raw_detector(name)
    elif name in ("fcn_resnet50", "deeplabv3_resnet50"):
        whole = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None)
        model = torch.nn.Sequential(whole.backbone, Take("out"), whole.classifier)
    elif name == "ssdlite320_backbone":
        whole = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
        model = torch.nn.Sequential(whole.backbone, Values())
    else:
        options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        if name == "googlenet":
            options["aux_logits"] = False
        model = getattr(torchvision.models, name)(weights=None, **options)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0  # the statistics of the last batch
            torch.nn.init.uniform_(module.weight, 0.5, 1.2)
            torch.nn.init.normal_(module.bias, 0, 0.1)
    side = NETWORKS[name]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model.train()(torch.randn(2, 3, side, side))
    return model.eval()


def export(name, exporter, path):
    if name in YOLOX:
        onnx.utils.extract_model(os.environ["YOLOX_ONNX"], str(path), ["images"], YOLOX_OUTPUTS)
        return
    model, side = network(name), NETWORKS[name]
    x = torch.zeros(1, 3, side, side)
    if exporter == "torchscript":
        torch.onnx.export(model, (x,), str(path), dynamo=False, opset_version=17, input_names=["image"],
                          dynamic_axes={"image": {0: "batch"}})
    else:
        torch.onnx.export(model, (torch.cat([x, x]),), str(path), dynamo=True, input_names=["image"], verbose=False,
                          dynamic_shapes=({0: torch.export.Dim("batch")},), external_data=False)
