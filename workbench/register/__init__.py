"""Names that torch knows: the only package that registers, with what callers and tracers see behind them."""
