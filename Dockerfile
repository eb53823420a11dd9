# A server of yours over HTTP:  docker run -v ./server.py:/srv/server.py -p 8000:8000 IMAGE
# docs/operations.md tells of names, keys, several nodes and nginx.

FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY src src
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[auth,http,metrics,redis]'

FROM python:3.13-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels 'dovetail[auth,http,metrics,redis]' \
    && useradd --system --no-create-home dovetail
USER dovetail
WORKDIR /srv
EXPOSE 8000
# Inside a container every address is its own; who may reach the port is decided outside.
ENTRYPOINT ["dovetail", "serve"]
CMD ["/srv/server.py", "--http", "0.0.0.0:8000"]
# /health says that the process serves; /ready, that it wants work: for load balancers.
HEALTHCHECK --interval=10s --timeout=3s CMD ["python", "-c", \
    "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=2)"]
