"""The controller ``colocationprofile``: profiles also reach pods that were there before them."""
