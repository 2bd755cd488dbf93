"""The providers that come with proctor; each is imported when a model of it is named."""
