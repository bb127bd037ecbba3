using System.Diagnostics;
using System.Diagnostics.Metrics;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;

namespace Quantra.Client.Transport;

/// <summary>
/// What may be seen of calls: activities and metrics, both named "Quantra.Client", and a log. Labels are methods, models and
/// reasons, never what was sent or answered.
/// </summary>
internal sealed partial class CallWatch(ILoggerFactory? loggers)
{
    private const string Name = "Quantra.Client";

    private static readonly ActivitySource Activities = new(Name);
    private static readonly Meter Meter = new(Name);
    private static readonly Counter<long> Calls = Meter.CreateCounter<long>(
        "quantra.client.calls", "{call}", "Calls that ended, by method, model and reason; the reason of a good one is OK.");

    private static readonly Histogram<double> Durations = Meter.CreateHistogram<double>(
        "quantra.client.call.duration", "s", "From a call to its answer or failure, over all attempts.");

    private static readonly Counter<long> Retries = Meter.CreateCounter<long>(
        "quantra.client.retries", "{attempt}", "Attempts beyond the first.");

    private readonly ILogger _log = loggers?.CreateLogger(Name) ?? NullLogger.Instance;

    /// <summary>Watches a call from here on.</summary>
    /// <param name="method">Such as Predict.</param>
    /// <param name="model">That is asked; "" = none in particular.</param>
    public Call Begin(string method, string model) => new(this, method, model);

    [LoggerMessage(1, LogLevel.Debug, "{Method} of '{Model}' was answered after {Milliseconds:f1} ms, attempts: {Attempts}")]
    private partial void Answered(string method, string model, double milliseconds, int attempts);

    [LoggerMessage(2, LogLevel.Warning, "{Method} of '{Model}' failed after {Milliseconds:f1} ms, attempts: {Attempts}: {Reason}")]
    private partial void Failed(string method, string model, double milliseconds, int attempts, string reason);

    /// <summary>A call that is watched.</summary>
    public sealed class Call
    {
        private const string Good = "OK";
        private readonly CallWatch _watch;
        private readonly string _method;
        private readonly string _model;
        private readonly long _began = Stopwatch.GetTimestamp();
        private readonly Activity? _activity;
        private readonly AttemptCounter.Attempts _attempts = AttemptCounter.Begin();

        internal Call(CallWatch watch, string method, string model)
        {
            (_watch, _method, _model) = (watch, method, model);
            _activity = Activities.StartActivity($"quantra.v1.PredictionService/{method}", ActivityKind.Client);
            _activity?.SetTag("rpc.system", "grpc");
            _activity?.SetTag("rpc.method", method);
            _activity?.SetTag("quantra.model", model);
        }

        /// <summary>It was answered.</summary>
        public void Succeed()
        {
            Record(Good);
            _watch.Answered(_method, _model, Stopwatch.GetElapsedTime(_began).TotalMilliseconds, _attempts.Count);
        }

        /// <summary>It failed.</summary>
        public void Fail(string reason)
        {
            _activity?.SetStatus(ActivityStatusCode.Error, reason);
            Record(reason);
            _watch.Failed(_method, _model, Stopwatch.GetElapsedTime(_began).TotalMilliseconds, _attempts.Count, reason);
        }

        private void Record(string reason)
        {
            var tags = new TagList { { "method", _method }, { "model", _model }, { "reason", reason } };
            Calls.Add(1, tags);
            Durations.Record(Stopwatch.GetElapsedTime(_began).TotalSeconds, tags);
            if (_attempts.Count > 1)
                Retries.Add(_attempts.Count - 1, tags);
            _activity?.SetTag("quantra.reason", reason);
            _activity?.SetTag("quantra.attempts", _attempts.Count);
            _activity?.Dispose();
        }
    }
}
