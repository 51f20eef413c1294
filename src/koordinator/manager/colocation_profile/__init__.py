"""The controller ``colocationprofile``: applies profiles to pods that existed before the profile."""
