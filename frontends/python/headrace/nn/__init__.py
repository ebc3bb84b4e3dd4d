"""Networks, with MLX's names: layers, losses and initialisers. docs/arrays.md has an example.

Images and sequences have their channels in the last dim: [N, L, C], [N, H, W, C]. Weights of convolutions are [O, .., I].
"""

from headrace.nn import init, losses
from headrace.nn.activations import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    HardShrink,
    Hardswish,
    HardTanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU2,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softmin,
    Softplus,
    Softshrink,
    Softsign,
    Step,
    Tanh,
    celu,
    elu,
    gelu,
    gelu_approx,
    gelu_fast_approx,
    glu,
    hard_shrink,
    hard_tanh,
    hardswish,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    mish,
    prelu,
    relu,
    relu2,
    relu6,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    step,
    tanh,
)
from headrace.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from headrace.nn.dropout import Dropout, Dropout2d, Dropout3d
from headrace.nn.gradients import checkpoint, value_and_grad
from headrace.nn.linear import Bilinear, Embedding, Identity, Linear, Sequential
from headrace.nn.module import Module
from headrace.nn.normalization import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from headrace.nn.pooling import AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d
from headrace.nn.positional_encoding import ALiBi, RoPE, SinusoidalPositionalEncoding
from headrace.nn.quantized import QQLinear, QuantizedEmbedding, QuantizedLinear, quantize
from headrace.nn.recurrent import GRU, LSTM, RNN
from headrace.nn.transformer import (
    MultiHeadAttention,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from headrace.nn.upsample import Upsample
