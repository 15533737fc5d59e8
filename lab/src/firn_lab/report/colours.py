"""The colours of targets, the same in pages and pictures."""

# The palette of Okabe and Ito, distinguishable with every kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D00")
