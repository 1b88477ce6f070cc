"""``python -m fitformer`` is the command ``fitformer``."""

from fitformer.cli import main

if __name__ == "__main__":
    main()
