"""What membership shows in: numbers made of a model's outputs (logits [n, classes]) and true labels.

Everything is computed from logits in double precision, since an over-fitted model answers with probabilities so near to
1 that their difference to 1 is lost in a softmax.
"""

from __future__ import annotations

import numpy as np

from sordino.data.schema import CLASSIFICATION, MULTI_LABEL


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities, one row per record, without overflow."""
    logits = np.asarray(logits, np.float64)
    return logits - _logsumexp(logits)[:, None]


def softmax(logits: np.ndarray) -> np.ndarray:
    """The probabilities that a model gives each class, one row per record."""
    return np.exp(log_softmax(logits))


def loss(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Cross-entropy, by the log-odds: as precise near 0 as anywhere."""
    return np.logaddexp(0.0, -log_odds(logits, labels))


def task_loss(task: str, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The loss of each record, for every task: as training takes it, in double precision.

    >>> task_loss("regression", np.array([[3.0]]), np.array([[1.0]])).tolist()
    [4.0]
    """
    if task == CLASSIFICATION:
        return loss(outputs, labels)
    outputs, labels = np.asarray(outputs, np.float64)[:, : labels.shape[1]], np.asarray(labels, np.float64)
    if task == MULTI_LABEL:
        return (np.logaddexp(0.0, outputs) - labels * outputs).mean(1)
    return np.square(outputs - labels).mean(1)


def confidence(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The probability of the true label."""
    return np.exp(-loss(logits, labels))


def log_odds(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """log(p / (1 - p)) of the true label: the logit less the log-sum-exp of the others (Carlini et al. 2022).

    >>> bool(np.isclose(log_odds(np.log([[0.8, 0.1, 0.1]]), np.array([0]))[0], np.log(4)))
    True
    """
    logits = np.asarray(logits, np.float64)
    return _at(logits, labels) - _logsumexp(_without(logits, labels))


def margin(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The logit of the true label less the largest other (Bertran et al. 2023)."""
    logits = np.asarray(logits, np.float64)
    return _at(logits, labels) - _without(logits, labels).max(1)


def entropy(logits: np.ndarray) -> np.ndarray:
    """How undecided the model is about each record, in nats."""
    logs = log_softmax(logits)
    return -(np.exp(logs) * logs).sum(1)


def modified_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """-(1 - p_y) log p_y - sum over others of p_i log(1 - p_i) (Song and Mittal 2021): 0 when sure and right."""
    logits = np.asarray(logits, np.float64)
    odds = _at(logits, labels) - _logsumexp(_without(logits, labels))
    mine = np.exp(-np.logaddexp(0.0, odds)) * np.logaddexp(0.0, -odds)  # (1 - p) times -log p
    others = np.exp(log_softmax(logits)) * _log_rest(logits)
    return mine - _without(others, labels).sum(1)


def largest(logits: np.ndarray, count: int) -> np.ndarray:
    """The largest probabilities, in decreasing order."""
    return -np.sort(-softmax(logits), axis=1)[:, :count]


def summary(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Confidence, loss and entropy: what the true label adds to the vector of probabilities."""
    return np.column_stack([confidence(logits, labels), loss(logits, labels), entropy(logits)])


def _logsumexp(logits: np.ndarray) -> np.ndarray:
    top = logits.max(1)
    return top + np.log(np.exp(logits - top[:, None]).sum(1))


def _log_rest(logits: np.ndarray) -> np.ndarray:
    """log(1 - p) for every class; for the likeliest by its odds, where 1 - p would round to 0."""
    top = logits.argmax(1)
    with np.errstate(divide="ignore"):  # p = 1, of the likeliest, which is replaced
        rest = np.log1p(-np.minimum(softmax(logits), 1.0))
    rest[np.arange(len(logits)), top] = -np.logaddexp(0.0, log_odds(logits, top))
    return rest


def _at(table: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return table[np.arange(len(table)), labels]


def _without(table: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Each row without its labelled entry."""
    mask = np.ones(table.shape, bool)
    mask[np.arange(len(table)), labels] = False
    return table[mask].reshape(len(table), -1)
