# Every process of the shop (target `services`) and Spark's jobs (target `analytics`), from the same lock as a
# checkout: `docker build --target services .`. docs/reference/containers.md says what was proved with it.

FROM python:3.13-slim AS python
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

FROM python AS dependencies
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_NO_CACHE=1 UV_PYTHON_DOWNLOADS=never PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY infra/setup/uv.lock infra/setup/
RUN python -m pip install --no-cache-dir --quiet --disable-pip-version-check --require-hashes -r infra/setup/uv.lock \
    && python -m venv --without-pip /venv
# Names from pyproject.toml; versions and hashes from the lock, which is a constraint on all that comes along.
COPY pyproject.toml requirements.lock ./
RUN uv pip install --quiet --python /venv/bin/python --constraints requirements.lock -r pyproject.toml

FROM dependencies AS analytics-dependencies
RUN uv pip install --quiet --python /venv/bin/python --constraints requirements.lock --group analytics

# The locked jars come from Maven Central, as in a checkout.
FROM analytics-dependencies AS jars
WORKDIR /app
COPY contracts/__init__.py contracts/kafka_address.py contracts/
COPY infra/__init__.py infra/jars.lock infra/
COPY infra/base/__init__.py infra/base/errors.py infra/base/settings.py infra/base/ports.py infra/base/
COPY infra/stack/__init__.py infra/stack/
COPY infra/stack/embedded/__init__.py infra/stack/embedded/java.py infra/stack/embedded/
ENV DAYBOOK_CACHE=/cache
RUN /venv/bin/python -m infra.stack.embedded.java spark monitoring && mv /cache/jars/spark-* /spark-jars && mv /cache/jars/monitoring-* /monitoring-jars
# the Java of the lock, in a form that Spark starts on
RUN /venv/bin/python -c 'from infra.stack.embedded.java import java_home_for_spark; java_home_for_spark().rename("/java")'

# A folder for each set of plugins; the language of scripts is for all of them.
FROM analytics-dependencies AS plugins
WORKDIR /app
COPY contracts/__init__.py contracts/kafka_address.py contracts/
COPY infra/__init__.py infra/jars.lock infra/
COPY infra/base/__init__.py infra/base/errors.py infra/base/settings.py infra/base/ports.py infra/base/
COPY infra/stack/__init__.py infra/stack/
COPY infra/stack/embedded/__init__.py infra/stack/embedded/java.py infra/stack/embedded/
ENV DAYBOOK_CACHE=/cache
RUN mkdir /plugins && for set in files lines scripts tables avro groovy; do \
        /venv/bin/python -m infra.stack.embedded.java connect-$set && mv /cache/jars/connect-$set-* /plugins/$set || exit 1; \
    done && mv /plugins/groovy /groovy

FROM python AS code
WORKDIR /app
COPY contracts contracts
COPY services services
COPY infra/__init__.py infra/
COPY infra/base infra/base
COPY infra/identity infra/identity
COPY infra/log infra/log
COPY infra/stack infra/stack
# the guard of a site and the router, of profile `sites`
COPY infra/dr infra/dr
COPY infra/router infra/router
# two steps on Kubernetes: who a pod is to Kafka, and another slot layout
COPY infra/k8s/__init__.py infra/k8s/identity.py infra/k8s/layout.py infra/k8s/
RUN python -m compileall -q .

FROM python AS runtime
# what a volume begins as, where a step writes into one
RUN useradd --uid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin daybook \
    && install -d -o daybook /mirror /lists
COPY --chmod=0755 infra/stack/compose/healthy /usr/local/bin/
WORKDIR /app
ENV PATH=/venv/bin:$PATH DAYBOOK_HTTP_HOST=0.0.0.0 DAYBOOK_HTTP_PORT=8080 \
    DAYBOOK_HEALTH_HOST=0.0.0.0 DAYBOOK_HEALTH_PORT=8090
EXPOSE 8080
USER daybook
# No shell in between: the process gets SIGTERM itself; what to run is the command: services.order.service api
ENTRYPOINT ["python", "-m"]

FROM runtime AS analytics
USER root
RUN install -d -o daybook -g daybook /marts
USER daybook
COPY --from=analytics-dependencies /venv /venv
COPY --from=jars /spark-jars /spark-jars
COPY --from=jars /java /java
COPY --from=code /app /app
COPY analytics analytics
ENV DAYBOOK_SPARK_JARS=/spark-jars JAVA_HOME=/java

# JMX of a broker, for Prometheus; arguments are a port and a file. The small Java of the lock knows no JMX by RMI,
# the broker's own does.
FROM apache/kafka:4.3.1 AS broker-metrics
COPY --from=jars /monitoring-jars /jars
ENTRYPOINT ["java", "-Xmx64m", "-XX:+UseSerialGC", "-cp", "/jars/*", "io.prometheus.jmx.WebServer"]

# Kafka Connect with the plugins of the lock.
FROM apache/kafka:4.3.1 AS connect
COPY --from=plugins --chown=appuser /plugins /plugins
COPY --from=plugins /groovy /groovy
# a list in each folder of what is in it: else every start looks into every class
RUN /opt/kafka/bin/kafka-run-class.sh org.apache.kafka.tools.ConnectPluginPath sync-manifests --plugin-path /plugins
COPY --chmod=0755 infra/stack/compose/connect-worker infra/stack/compose/connect-healthy /usr/local/bin/
USER root
# what a volume begins as
RUN install -d -o appuser /positions
USER appuser
ENV CLASSPATH=/groovy/*

FROM runtime AS services
COPY --from=dependencies /venv /venv
COPY --from=code /app /app
