using System.Diagnostics;
using System.Diagnostics.Metrics;
using Microsoft.Extensions.Logging;
using Microsoft.Extensions.Logging.Abstractions;
using Quantra.Client.Wire;

namespace Quantra.Client.Transport;

/// <summary>
/// Records traces and metrics, both named "Quantra.Client", and logs of calls. Tags are methods, models and reasons, never payloads.
/// </summary>
internal sealed partial class ClientTelemetry(ILoggerFactory? loggers, string service) : IStreamTelemetry
{
    private const string Name = "Quantra.Client";
    private const string Stream = "PredictStream";
    private const string Ok = "OK";

    private static readonly ActivitySource Activities = new(Name);
    private static readonly Meter Meter = new(Name);
    private static readonly Counter<long> Calls = Meter.CreateCounter<long>(
        "quantra.client.calls", "{call}", "Completed calls by method, model and reason. The reason of a successful call is OK.");

    private static readonly Histogram<double> Durations = Meter.CreateHistogram<double>(
        "quantra.client.call.duration", "s", "Duration of calls over all attempts.");

    private static readonly Counter<long> Retries = Meter.CreateCounter<long>(
        "quantra.client.retries", "{attempt}", "Attempts after the first.");

    private readonly ILogger _log = loggers?.CreateLogger(Name) ?? NullLogger.Instance;

    private string Service => service;

    /// <summary>Starts to track a call. The model is "" for calls without one.</summary>
    public ICallTelemetry Begin(string method, string model) => new Call(this, method, model) { IsCounted = true };

    /// <inheritdoc/>
    public ICallTelemetry BeginStream() => new Call(this, Stream, "");

    /// <inheritdoc/>
    public ICallTelemetry BeginSessionRequest(string model) => new Call(this, Stream, model) { IsCounted = true };

    /// <inheritdoc/>
    public void RequestCompleted(string model, TimeSpan duration, string? reason) => Count(Stream, model, reason ?? Ok, duration);

    /// <inheritdoc/>
    public void StreamResumed(string reason)
    {
        Retries.Add(1, new TagList { { "method", Stream }, { "model", "" }, { "reason", reason } });
        LogResumed(reason);
    }

    /// <inheritdoc/>
    public void SessionReopened(string session, string model, string reason) => LogReopened(session, model, reason);

    private static void Count(string method, string model, string reason, TimeSpan duration)
    {
        var tags = new TagList { { "method", method }, { "model", model }, { "reason", reason } };
        Calls.Add(1, tags);
        Durations.Record(duration.TotalSeconds, tags);
    }

    [LoggerMessage(1, LogLevel.Debug, "{Method} of '{Model}' succeeded after {Milliseconds:f1} ms, attempts: {Attempts}")]
    private partial void LogSuccess(string method, string model, double milliseconds, int attempts);

    [LoggerMessage(2, LogLevel.Warning, "{Method} of '{Model}' failed after {Milliseconds:f1} ms, attempts: {Attempts}: {Reason}")]
    private partial void LogFailure(string method, string model, double milliseconds, int attempts, string reason);

    [LoggerMessage(3, LogLevel.Debug, "{Method} of '{Model}' was cancelled after {Milliseconds:f1} ms, attempts: {Attempts}")]
    private partial void LogCancellation(string method, string model, double milliseconds, int attempts);

    [LoggerMessage(4, LogLevel.Information, "a stream broke ({Reason}) and continues over another call")]
    private partial void LogResumed(string reason);

    [LoggerMessage(5, LogLevel.Warning, "session {Session} of '{Model}' was lost ({Reason}) and reopened with its history")]
    private partial void LogReopened(string session, string model, string reason);

    private sealed class Call : ICallTelemetry
    {
        private readonly ClientTelemetry _owner;
        private readonly string _method;
        private readonly string _model;
        private readonly long _started = Stopwatch.GetTimestamp();
        private readonly Activity? _activity;
        private int _attempts = 1;

        internal Call(ClientTelemetry owner, string method, string model)
        {
            (_owner, _method, _model) = (owner, method, model);
            _activity = Activities.StartActivity($"{owner.Service}/{method}", ActivityKind.Client);
            _activity?.SetTag("rpc.system", "grpc");
            _activity?.SetTag("rpc.method", method);
            _activity?.SetTag("quantra.model", model);
        }

        /// <summary>Whether a success counts as a call in the metrics. In a stream, each request counts instead.</summary>
        public bool IsCounted { private get; init; }

        /// <inheritdoc/>
        public void Retry() => _attempts++;

        /// <inheritdoc/>
        public void Succeed()
        {
            Record(Ok, IsCounted);
            _owner.LogSuccess(_method, _model, Stopwatch.GetElapsedTime(_started).TotalMilliseconds, _attempts);
        }

        /// <inheritdoc/>
        public void Fail(string reason)
        {
            _activity?.SetStatus(ActivityStatusCode.Error, reason);
            Record(reason, isCounted: true);
            var duration = Stopwatch.GetElapsedTime(_started).TotalMilliseconds;
            if (reason == QuantraReason.Cancelled)
                _owner.LogCancellation(_method, _model, duration, _attempts);
            else
                _owner.LogFailure(_method, _model, duration, _attempts, reason);
        }

        private void Record(string reason, bool isCounted)
        {
            if (isCounted)
                Count(_method, _model, reason, Stopwatch.GetElapsedTime(_started));
            if (_attempts > 1)
                Retries.Add(_attempts - 1, new TagList { { "method", _method }, { "model", _model }, { "reason", reason } });
            _activity?.SetTag("quantra.reason", reason);
            _activity?.SetTag("quantra.attempts", _attempts);
            _activity?.Dispose();
        }
    }
}
