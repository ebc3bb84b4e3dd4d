"""Optimizers and schedules of learning rates, with MLX's names."""

from headrace.optimizers.optimizers import SGD, Adam, AdamW, Optimizer, clip_grad_norm
