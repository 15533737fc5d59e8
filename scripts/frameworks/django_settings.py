"""Settings of Django's own test suite on the server at FRAMEWORKS_SOCKET."""

import os

_SERVER = {
    "ENGINE": "django.db.backends.mysql",
    "HOST": os.environ["FRAMEWORKS_SOCKET"],
    "USER": "root",
    "OPTIONS": {"charset": "utf8mb4"},
    "TEST": {"CHARSET": "utf8mb4", "COLLATION": "utf8mb4_general_ci"},
}

DATABASES = {
    "default": {**_SERVER, "NAME": "django_default"},
    "other": {**_SERVER, "NAME": "django_other"},
}

SECRET_KEY = "django_tests_secret_key"  # noqa: S105: the suite asks for any
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TEST_RUNNER = "django_recorder.RecordingRunner"
