"""Non-maximum suppression against a loop over all pairs."""

import numpy as np
import pytest

import headrace as hr

rng = np.random.default_rng(59)


def corners(box, center):
    if center:
        x, y, w, h = box
        return y - h / 2, x - w / 2, y + h / 2, x + w / 2
    return min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]), max(box[1], box[3])


def overlap(a, b):
    height = max(0, min(a[2], b[2]) - max(a[0], b[0]))
    width = max(0, min(a[3], b[3]) - max(a[1], b[1]))
    union = sum((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)) - height * width
    return height * width / union if union > 0 and height * width > 0 else 0


def suppressed(boxes, scores, most=-1, bound=0.0, least=None, center=False):
    found = []
    for b, c in np.ndindex(*scores.shape[:2]):
        ends, kept = [corners(box, center) for box in boxes[b]], []
        for i in sorted(range(boxes.shape[1]), key=lambda i: (-scores[b, c, i], i)):
            if (least is None or scores[b, c, i] > least) and (most < 0 or len(kept) < most):
                if all(overlap(ends[i], ends[j]) <= bound for j in kept):
                    kept.append(i)
        found += [[b, c, i] for i in kept]
    return np.array(found, int).reshape(-1, 3)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("most", [-1, 0, 3])
@pytest.mark.parametrize("bound, least", [(0.0, None), (0.4, 0.3), (1.0, 0.0)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_boxes_that_stay(center, most, bound, least, dtype):
    boxes, scores = rng.uniform(0, 4, (2, 20, 4)).astype(dtype), rng.uniform(0, 1, (2, 3, 20)).astype(dtype)
    scores[0, 0, 3:6] = 0.9  # equal ones
    options = {} if least is None else {"least": least}
    y = hr.non_max_suppression(hr.array(boxes), hr.array(scores), most, bound, center=center, **options)
    assert str(y.dtype) == "int64"
    np.testing.assert_array_equal(np.asarray(y), suppressed(boxes.astype(float), scores, most, bound, least, center))


def test_nothing_and_bad_boxes():
    assert hr.non_max_suppression(hr.zeros((1, 0, 4)), hr.zeros((1, 2, 0))).shape == (0, 3)
    boxes = hr.array([[[0.0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, 2]]])
    y = hr.non_max_suppression(boxes, hr.array([[[np.nan, 0.5, 0.25]]]))
    assert y.tolist() == [[0, 0, 1], [0, 0, 2]]
    with pytest.raises(ValueError, match=r"boxes \[1,3,4\] and scores \[1,1,2\], expected"):
        hr.non_max_suppression(boxes, hr.ones((1, 1, 2)))
