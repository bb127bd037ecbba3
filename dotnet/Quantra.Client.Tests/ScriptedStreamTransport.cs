using System.Threading.Channels;
using Quantra.Client.Wire;

namespace Quantra.Client.Tests;

/// <summary>A transport whose responses a test scripts.</summary>
internal sealed class ScriptedStreamTransport(Action<V1.PredictStreamRequest, ScriptedStreamTransport.ScriptedCall> respond) : IStreamTransport, IStreamTelemetry, ICallTelemetry
{
    public CallSettings Settings { get; init; } = new()
    {
        Target = "the script",
        Timeout = TimeSpan.FromSeconds(30),
        MaxInFlight = 32,
        MaxAttempts = 4,
        MaxRequestBytes = int.MaxValue,
    };

    /// <summary>Bars that the described model reads.</summary>
    public int BarsNeeded { get; set; } = 100;

    /// <summary>Whether a call ends when the client completes its requests.</summary>
    public bool EndsCalls { get; init; } = true;

    public List<ScriptedCall> Calls { get; } = [];

    public List<string> Reopenings { get; } = [];

    public IStreamTelemetry Telemetry => this;

    public Task<IDuplexCall> OpenAsync(CancellationToken cancellationToken)
    {
        var call = new ScriptedCall(Calls.Count, respond, EndsCalls, cancellationToken);
        Calls.Add(call);
        return Task.FromResult<IDuplexCall>(call);
    }

    public Task<V1.ModelInfo> GetModelAsync(string reference, CancellationToken cancellationToken) =>
        Task.FromResult(new V1.ModelInfo { BarsNeeded = BarsNeeded });

    public ICallTelemetry BeginStream() => this;

    public ICallTelemetry BeginSessionRequest(string model) => this;

    public void RequestCompleted(string model, TimeSpan duration, string? reason)
    {
    }

    public void StreamResumed(string reason) => Reopenings.Add(reason);

    public void SessionReopened(string session, string model, string reason) => Reopenings.Add(reason);

    public void Retry()
    {
    }

    public void Succeed()
    {
    }

    public void Fail(string reason)
    {
    }

    internal sealed class ScriptedCall(int number, Action<V1.PredictStreamRequest, ScriptedCall> respond, bool ends, CancellationToken cancellationToken) : IDuplexCall
    {
        private readonly TaskCompletionSource _completed = new(TaskCreationOptions.RunContinuationsAsynchronously);
        private readonly Channel<V1.PredictStreamResponse> _responses = Channel.CreateUnbounded<V1.PredictStreamResponse>();

        /// <summary>Index of the call, from 0.</summary>
        public int Number => number;

        public List<V1.PredictStreamRequest> Sent { get; } = [];

        /// <summary>Completes when the client completes its requests.</summary>
        public Task Completed => _completed.Task;

        public void Forecast(V1.PredictStreamRequest request) =>
            Respond(request, new() { Forecast = new V1.Forecast { Model = "small", Version = 1 } });

        public void Error(V1.PredictStreamRequest request, string reason, QuantraStatus code = QuantraStatus.InvalidArgument) =>
            Respond(request, new() { Error = new V1.Error { Code = (int)code, Reason = reason, Metadata = { ["retry_after_ms"] = "1" } } });

        public void Respond(V1.PredictStreamRequest request, V1.PredictStreamResponse response)
        {
            response.RequestId = request.RequestId;
            _responses.Writer.TryWrite(response);
        }

        /// <summary>Ends the call, with or without a failure.</summary>
        public void End(QuantraException? failure = null) => _responses.Writer.TryComplete(failure);

        public Task<bool> SendAsync(V1.PredictStreamRequest request)
        {
            lock (Sent)
                Sent.Add(request);
            respond(request, this);
            return Task.FromResult(true);
        }

        public Task CompleteAsync()
        {
            _completed.TrySetResult();
            if (ends)
                End();
            return Task.CompletedTask;
        }

        public async Task<V1.PredictStreamResponse?> ReadAsync() =>
            await _responses.Reader.WaitToReadAsync(cancellationToken) && _responses.Reader.TryRead(out var response) ? response : null;

        public ValueTask DisposeAsync() => ValueTask.CompletedTask;
    }
}
