# frozen_string_literal: true

require "helper"
require "rack/builder"
require "rack/lint"
require "rack/mock"

class MiddlewareTest < Minitest::Test
  def setup
    registry = @registry = fresh
    @app = Rack::Builder.new do
      use Rack::Lint
      use Quipu::Middleware::Collector, registry: registry
      use Quipu::Middleware::Exporter, registry: registry
      use Rack::Lint
      run(lambda do |env|
        raise IOError, "broken" if env["PATH_INFO"] == "/broken"

        [200, { "content-type" => "text/plain" }, ["OK"]]
      end)
    end.to_app
  end

  def request(path, method: "GET", **headers)
    Rack::MockRequest.new(@app).request(method, path, headers)
  end

  def test_counts_requests
    request("/a/12/b/34")
    request("/a/12/b/34", method: "POST")
    request("/u/8d2f9d3c-3f6b-4a1e-9f5e-0123456789ab")
    request("/x", method: "BREW")
    assert_raises(IOError) { request("/broken") }
    text = @registry.to_s
    ['http_server_requests_total{code="200",method="get",path="/a/:id/b/:id"} 1',
     'http_server_requests_total{code="200",method="post",path="/a/:id/b/:id"} 1',
     'http_server_requests_total{code="200",method="get",path="/u/:uuid"} 1',
     'http_server_requests_total{code="200",method="other",path="/x"} 1',
     'http_server_request_duration_seconds_count{method="get",path="/a/:id/b/:id"} 1',
     'http_server_exceptions_total{exception="IOError"} 1'].each { |line| assert_includes text, line }
  end

  def test_exports
    request("/x")
    response = request("/metrics")
    assert_equal 200, response.status
    assert_equal "text/plain; version=0.0.4; charset=utf-8", response["content-type"]
    assert_includes response.body, 'http_server_requests_total{code="200",method="get",path="/x"} 1'
    response = request("/metrics", "HTTP_ACCEPT" => "application/openmetrics-text;version=1.0.0")
    assert_match(/openmetrics/, response["content-type"])
    assert response.body.end_with?("# EOF\n")
    assert_empty request("/metrics", method: "HEAD").body
    assert_equal "OK", request("/metrics/more").body
  end

  def test_options
    registry = fresh
    app = Quipu::Middleware::Collector.new(->(_) { [204, {}, []] }, registry: registry,
                                                                  metrics_prefix: "my")
    app = Quipu::Middleware::Exporter.new(app, registry: registry, path: "/m", port: 9)
    Quipu::Middleware::Collector.new(app, registry: registry, metrics_prefix: "my")
    mock = Rack::MockRequest.new(app)
    mock.get("/m")
    assert_includes mock.get("http://host:9/m").body, 'my_requests_total{code="204",method="get",path="/m"} 1'
  end

  def test_paths_of_any_bytes
    app = Quipu::Middleware::Collector.new(->(_) { [200, {}, []] }, registry: @registry,
                                                                  metrics_prefix: "raw")
    app.call("REQUEST_METHOD" => "GET", "PATH_INFO" => "/\xff/1".b, "SCRIPT_NAME" => "")
    assert_includes @registry.to_s, "path=\"/\uFFFD/:id\""
  end
end
