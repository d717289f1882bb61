# A server of predictions: docs/serving.md.
#
#     docker build -t protofission-serve .
#     docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/model:/model:ro" protofission-serve

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
# torch for processors alone: the usual one brings gigabytes for graphics cards. What it needs comes from PyPI below.
COPY constraints.txt /
RUN pip install --no-cache-dir --no-deps -c /constraints.txt --index-url https://download.pytorch.org/whl/cpu torch
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir -c /constraints.txt "$(echo /wheels/*.whl)[encoder,web]" && rm -r /wheels
RUN useradd --uid 10001 --no-create-home --home-dir /tmp server
USER 10001
WORKDIR /tmp
ENV HOME=/tmp OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD \
    ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["protofission", "serve"]
CMD ["/model", "--host", "0.0.0.0", "--allow-remote"]
