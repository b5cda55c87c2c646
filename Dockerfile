# dpgen without a GPU, as a user that is not root: docker build --build-arg TORCH_INDEX=URL -t dpgen .
# URL is the index of PyTorch's builds for CPU, which its installation page gives; without it pip may take those for CUDA.
# --build-arg BASE=IMAGE takes another image with Python 3.11, such as one of a mirror.
ARG BASE=python:3.11-slim
# hadolint ignore=DL3006
FROM ${BASE} AS build

ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/dpgen
ENV PATH=/opt/dpgen/bin:$PATH
# hadolint ignore=DL3013
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch torchvision
WORKDIR /src
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY configs configs
COPY dpgen dpgen
# The index decides about PyTorch; all else has the versions that the tests ran with.
# hadolint ignore=DL3013
RUN grep -vE '^torch(vision)?==' constraints.txt > pins.txt && pip install -c pins.txt '.[train,sql]'

# hadolint ignore=DL3006
FROM ${BASE}

COPY --from=build /opt/dpgen /opt/dpgen
RUN useradd --create-home --uid 1000 dpgen
ENV PATH=/opt/dpgen/bin:$PATH PYTHONUNBUFFERED=1 MPLCONFIGDIR=/tmp/matplotlib NUMBA_CACHE_DIR=/tmp/numba
USER 1000
WORKDIR /home/dpgen
ENTRYPOINT ["dpgen"]
CMD ["--help"]
