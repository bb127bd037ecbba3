using System.Diagnostics;
using System.Diagnostics.Metrics;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;
using Quantra.Client.Wire;

namespace Quantra.Client.Transport;

/// <summary>
/// What may be seen of calls: activities and metrics, both named "Quantra.Client", and a log. Labels are methods, models and
/// reasons, never what was sent or answered.
/// </summary>
internal sealed partial class CallWatch(ILoggerFactory? loggers, string service) : IStreamWatch
{
    private const string Name = "Quantra.Client";
    private const string Stream = "PredictStream";
    private const string Good = "OK";

    private static readonly ActivitySource Activities = new(Name);
    private static readonly Meter Meter = new(Name);
    private static readonly Counter<long> Calls = Meter.CreateCounter<long>(
        "quantra.client.calls", "{call}", "Calls that ended, by method, model and reason; the reason of a good one is OK.");

    private static readonly Histogram<double> Durations = Meter.CreateHistogram<double>(
        "quantra.client.call.duration", "s", "From a call to its answer or failure, over all attempts.");

    private static readonly Counter<long> Retries = Meter.CreateCounter<long>(
        "quantra.client.retries", "{attempt}", "Attempts beyond the first.");

    private readonly ILogger _log = loggers?.CreateLogger(Name) ?? NullLogger.Instance;

    /// <summary>Whose calls they are, with its package.</summary>
    private string Service => service;

    /// <summary>Watches a call from here on.</summary>
    /// <param name="method">Such as Predict.</param>
    /// <param name="model">That is asked; "" = none in particular.</param>
    public IWatchedCall Begin(string method, string model) => new Call(this, method, model) { IsCounted = true };

    /// <inheritdoc/>
    public IWatchedCall BeginStream() => new Call(this, Stream, "");

    /// <inheritdoc/>
    public IWatchedCall BeginRequest(string model) => new Call(this, Stream, model) { IsCounted = true };

    /// <inheritdoc/>
    public void Answered(string model, TimeSpan took, string? reason) => Count(Stream, model, reason ?? Good, took);

    /// <inheritdoc/>
    public void GoesOn(string reason)
    {
        Retries.Add(1, new TagList { { "method", Stream }, { "model", "" }, { "reason", reason } });
        WentOn(reason);
    }

    /// <inheritdoc/>
    public void Reopened(string session, string model, string reason) => OpenAgain(session, model, reason);

    private static void Count(string method, string model, string reason, TimeSpan took)
    {
        var tags = new TagList { { "method", method }, { "model", model }, { "reason", reason } };
        Calls.Add(1, tags);
        Durations.Record(took.TotalSeconds, tags);
    }

    [LoggerMessage(1, LogLevel.Debug, "{Method} of '{Model}' was answered after {Milliseconds:f1} ms, attempts: {Attempts}")]
    private partial void Answered(string method, string model, double milliseconds, int attempts);

    [LoggerMessage(2, LogLevel.Warning, "{Method} of '{Model}' failed after {Milliseconds:f1} ms, attempts: {Attempts}: {Reason}")]
    private partial void Failed(string method, string model, double milliseconds, int attempts, string reason);

    [LoggerMessage(3, LogLevel.Debug, "{Method} of '{Model}' was cancelled after {Milliseconds:f1} ms, attempts: {Attempts}")]
    private partial void Cancelled(string method, string model, double milliseconds, int attempts);

    [LoggerMessage(4, LogLevel.Information, "a stream broke ({Reason}) and goes on over another call")]
    private partial void WentOn(string reason);

    [LoggerMessage(5, LogLevel.Warning, "session {Session} of '{Model}' was lost ({Reason}) and is open again with its history")]
    private partial void OpenAgain(string session, string model, string reason);

    /// <summary>A call that is watched.</summary>
    private sealed class Call : IWatchedCall
    {
        private readonly CallWatch _watch;
        private readonly string _method;
        private readonly string _model;
        private readonly long _began = Stopwatch.GetTimestamp();
        private readonly Activity? _activity;
        private int _attempts = 1;

        internal Call(CallWatch watch, string method, string model)
        {
            (_watch, _method, _model) = (watch, method, model);
            _activity = Activities.StartActivity($"{watch.Service}/{method}", ActivityKind.Client);
            _activity?.SetTag("rpc.system", "grpc");
            _activity?.SetTag("rpc.method", method);
            _activity?.SetTag("quantra.model", model);
        }

        /// <summary>Whether it is a call of the metrics if it is good; of a stream each request is one.</summary>
        public bool IsCounted { private get; init; }

        /// <inheritdoc/>
        public void TryAgain() => _attempts++;

        /// <inheritdoc/>
        public void Succeed()
        {
            Record(Good, IsCounted);
            _watch.Answered(_method, _model, Stopwatch.GetElapsedTime(_began).TotalMilliseconds, _attempts);
        }

        /// <inheritdoc/>
        public void Fail(string reason)
        {
            _activity?.SetStatus(ActivityStatusCode.Error, reason);
            Record(reason, isCounted: true);
            var took = Stopwatch.GetElapsedTime(_began).TotalMilliseconds;
            if (reason == QuantraReason.Cancelled)
                _watch.Cancelled(_method, _model, took, _attempts);
            else
                _watch.Failed(_method, _model, took, _attempts, reason);
        }

        private void Record(string reason, bool isCounted)
        {
            if (isCounted)
                Count(_method, _model, reason, Stopwatch.GetElapsedTime(_began));
            if (_attempts > 1)
                Retries.Add(_attempts - 1, new TagList { { "method", _method }, { "model", _model }, { "reason", reason } });
            _activity?.SetTag("quantra.reason", reason);
            _activity?.SetTag("quantra.attempts", _attempts);
            _activity?.Dispose();
        }
    }
}
