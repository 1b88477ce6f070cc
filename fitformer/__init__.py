"""fitformer fits a Transformer to the hardware it will run on."""

__version__ = "0.1.0"
