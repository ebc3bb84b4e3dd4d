"""scikit-learn's estimators and metrics with array API support, on arrays and on NumPy's, which give the same
results."""

import numpy as np
import pytest

import headrace as hr

sklearn = pytest.importorskip("sklearn", minversion="1.7", reason="scikit-learn is not installed")
scipy = pytest.importorskip("scipy")

from sklearn import config_context, metrics
from sklearn.datasets import make_classification, make_regression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier, RidgeCV
from sklearn.metrics import pairwise
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer, KernelCenterer, LabelEncoder, MaxAbsScaler, MinMaxScaler, Normalizer, PolynomialFeatures, StandardScaler,
)  # fmt: skip


def dispatches():
    """True if scipy was imported with array API support, as conftest.py requests."""
    from scipy._lib import _array_api

    return bool(_array_api.SCIPY_ARRAY_API)


pytestmark = [
    pytest.mark.skipif(not dispatches(), reason="scipy was imported without SCIPY_ARRAY_API=1"),
    pytest.mark.filterwarnings("ignore"),
]
X, CLASSES = make_classification(200, 10, n_informative=6, random_state=0, n_classes=3)
X_REAL, TARGETS = make_regression(200, 10, random_state=0)
ESTIMATORS = {
    "LinearDiscriminantAnalysis": (LinearDiscriminantAnalysis, {}, X, CLASSES, "predict"),
    "PCA full": (PCA, {"n_components": 3, "svd_solver": "full"}, X, None, "transform"),
    "PCA covariance": (PCA, {"n_components": 3, "svd_solver": "covariance_eigh"}, X, None, "transform"),
    "PCA randomized": (
        PCA,
        {"n_components": 3, "svd_solver": "randomized", "power_iteration_normalizer": "QR", "random_state": 0},
        X,
        None,
        "transform",
    ),
    "PCA whitened": (PCA, {"n_components": 5, "svd_solver": "full", "whiten": True}, X, None, "fit_transform"),
    "Ridge": (Ridge, {"solver": "svd"}, X_REAL, TARGETS, "predict"),
    "RidgeClassifier": (RidgeClassifier, {"solver": "svd"}, X, CLASSES, "predict"),
    "RidgeCV": (RidgeCV, {}, X_REAL, TARGETS, "predict"),
    "GaussianNB": (GaussianNB, {}, X, CLASSES, "predict_proba"),
    "LogisticRegression": (LogisticRegression, {"solver": "lbfgs"}, X, CLASSES, "predict"),
    "StandardScaler": (StandardScaler, {}, X, None, "transform"),
    "MinMaxScaler": (MinMaxScaler, {}, X, None, "transform"),
    "MaxAbsScaler": (MaxAbsScaler, {}, X, None, "transform"),
    "Normalizer": (Normalizer, {}, X, None, "transform"),
    "Binarizer": (Binarizer, {}, X, None, "transform"),
    "KernelCenterer": (KernelCenterer, {}, X @ X.T, None, "transform"),
    "PolynomialFeatures": (PolynomialFeatures, {"degree": 2}, X, None, "transform"),
    "Nystroem": (Nystroem, {"n_components": 20, "random_state": 0}, X, None, "transform"),
    "LabelEncoder": (LabelEncoder, {}, CLASSES, None, "transform"),
    "LabelEncoder back": (LabelEncoder, {}, CLASSES, None, "inverse_transform"),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name):
    kind, options, x, y, method = ESTIMATORS[name]
    arguments = [x] if y is None else [x, y]
    if method == "fit_transform":
        expected = kind(**options).fit_transform(x)
    else:
        expected = getattr(kind(**options).fit(*arguments), method)(x)
    with config_context(array_api_dispatch=True):
        arrays = [hr.asarray(argument) for argument in arguments]
        fitted = kind(**options)
        actual = fitted.fit_transform(arrays[0]) if method == "fit_transform" else None
        actual = getattr(fitted.fit(*arrays), method)(arrays[0]) if actual is None else actual
    assert isinstance(actual, hr.Array) and actual.shape == expected.shape
    actual = np.asarray(actual)
    if name.startswith("PCA"):  # directions have a sign of their own
        actual, expected = abs(actual), abs(expected)
    np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-9)


def test_a_pipeline_and_its_validation():
    pipeline = make_pipeline(StandardScaler(), PCA(4, svd_solver="full"), Ridge(solver="svd"))
    expected = cross_val_predict(pipeline, X_REAL, TARGETS, cv=3)
    parts = train_test_split(X_REAL, TARGETS, random_state=0)
    with config_context(array_api_dispatch=True):
        actual = cross_val_predict(pipeline, hr.asarray(X_REAL), hr.asarray(TARGETS), cv=3)
        ours = train_test_split(hr.asarray(X_REAL), hr.asarray(TARGETS), random_state=0)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-8, atol=1e-9)
    for part, other in zip(ours, parts, strict=True):
        assert isinstance(part, hr.Array)
        np.testing.assert_array_equal(np.asarray(part), other)


AVERAGED = dict.fromkeys(
    "f1_score precision_score recall_score jaccard_score".split(), ("micro", "macro", "weighted", None)
)
SCORES = {
    **dict.fromkeys("accuracy_score zero_one_loss hamming_loss confusion_matrix".split(), (0,)),
    **AVERAGED,
}
GUESSES = np.roll(CLASSES, 3)


@pytest.mark.parametrize(
    "name, average", [(name, average) for name, averages in SCORES.items() for average in averages]
)
def test_scores_of_classes(name, average):
    options = {"average": average} if name in AVERAGED else {}
    expected = getattr(metrics, name)(CLASSES, GUESSES, **options)
    with config_context(array_api_dispatch=True):
        actual = getattr(metrics, name)(hr.asarray(CLASSES), hr.asarray(GUESSES), **options)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-6)  # of integers, in float32


ERRORS = """mean_squared_error mean_absolute_error r2_score mean_absolute_percentage_error mean_squared_log_error
d2_tweedie_score explained_variance_score max_error median_absolute_error root_mean_squared_error mean_tweedie_deviance
mean_pinball_loss""".split()


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_predictions(name):
    y = np.abs(TARGETS) + 1
    expected = getattr(metrics, name)(y, 1.1 * y)
    with config_context(array_api_dispatch=True):
        actual = getattr(metrics, name)(hr.asarray(y), hr.asarray(1.1 * y))
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-9)


KERNELS = """cosine_similarity euclidean_distances linear_kernel rbf_kernel polynomial_kernel sigmoid_kernel
manhattan_distances chi2_kernel laplacian_kernel additive_chi2_kernel cosine_distances paired_cosine_distances
paired_euclidean_distances""".split()


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name):
    x = np.abs(X[:50])
    arguments = (x, x[::-1]) if name.startswith("paired") else (x,)
    expected = getattr(pairwise, name)(*arguments)
    with config_context(array_api_dispatch=True):
        actual = getattr(pairwise, name)(*(hr.asarray(argument) for argument in arguments))
    assert isinstance(actual, hr.Array)
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-9, atol=1e-7)
