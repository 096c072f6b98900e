# SPDX-License-Identifier: Apache-2.0
"""coco_ap.py SETS: what pycocotools says of sets of boxes, a JSON list, as JSON: the twelve numbers, and AP of each class."""
import contextlib
import io
import json
import sys

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


def scores(truth, detections):
    coco = COCO()
    coco.dataset = truth
    coco.createIndex()
    found = coco.loadRes(detections) if detections else COCO()
    if not detections:
        found.dataset = dict(truth, annotations=[])
        found.createIndex()
    evaluation = COCOeval(coco, found, "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    precision = evaluation.eval["precision"][..., 0, 2]  # [thresholds, recalls, classes]; -1: no label
    return {"stats": list(evaluation.stats), "classes": [float(np.mean(precision[..., k])) for k in range(precision.shape[2])]}


with contextlib.redirect_stdout(io.StringIO()):
    answer = [scores(**one) for one in json.load(open(sys.argv[1], encoding="utf-8"))]
print(json.dumps(answer))
