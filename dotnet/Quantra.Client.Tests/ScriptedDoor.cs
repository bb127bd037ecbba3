using System.Threading.Channels;
using Quantra.Client.Wire;

namespace Quantra.Client.Tests;

/// <summary>A predictor that says to each request what a test tells it to.</summary>
/// <param name="answer">Told each request, and who takes responses to it.</param>
internal sealed class ScriptedDoor(Action<V1.PredictStreamRequest, ScriptedDoor.Talk> answer) : IStreamDoor, IStreamWatch, IWatchedCall
{
    public CallSettings Settings { get; init; } = new()
    {
        Target = "the script",
        Timeout = TimeSpan.FromSeconds(30),
        MaxInFlight = 32,
        MaxAttempts = 4,
        MaxRequestBytes = int.MaxValue,
    };

    /// <summary>What a version of a model reads.</summary>
    public int BarsNeeded { get; set; } = 100;

    /// <summary>Whether it ends a call to which no request follows.</summary>
    public bool EndsCalls { get; init; } = true;

    public List<Talk> Talks { get; } = [];

    public List<string> Reopenings { get; } = [];

    public IStreamWatch Watch => this;

    public Task<IConversation> OpenAsync(CancellationToken cancellationToken)
    {
        var talk = new Talk(Talks.Count, answer, EndsCalls, cancellationToken);
        Talks.Add(talk);
        return Task.FromResult<IConversation>(talk);
    }

    public Task<V1.ModelInfo> GetModelAsync(string reference, CancellationToken cancellationToken) =>
        Task.FromResult(new V1.ModelInfo { BarsNeeded = BarsNeeded });

    public IWatchedCall BeginStream() => this;

    public IWatchedCall BeginRequest(string model) => this;

    public void Answered(string model, TimeSpan took, string? reason)
    {
    }

    public void GoesOn(string reason) => Reopenings.Add(reason);

    public void Reopened(string session, string model, string reason) => Reopenings.Add(reason);

    public void TryAgain()
    {
    }

    public void Succeed()
    {
    }

    public void Fail(string reason)
    {
    }

    /// <summary>One call.</summary>
    internal sealed class Talk(int number, Action<V1.PredictStreamRequest, Talk> answer, bool ends, CancellationToken cancellationToken) : IConversation
    {
        private readonly TaskCompletionSource _ended = new(TaskCreationOptions.RunContinuationsAsynchronously);
        private readonly Channel<V1.PredictStreamResponse> _responses = Channel.CreateUnbounded<V1.PredictStreamResponse>();

        /// <summary>From 0.</summary>
        public int Number => number;

        public List<V1.PredictStreamRequest> Sent { get; } = [];

        /// <summary>Done once no request follows.</summary>
        public Task Ended => _ended.Task;

        public void Forecast(V1.PredictStreamRequest request) =>
            Say(request, new() { Forecast = new V1.Forecast { Model = "small", Version = 1 } });

        public void Error(V1.PredictStreamRequest request, string reason, QuantraStatus code = QuantraStatus.InvalidArgument) =>
            Say(request, new() { Error = new V1.Error { Code = (int)code, Reason = reason, Metadata = { ["retry_after_ms"] = "1" } } });

        public void Say(V1.PredictStreamRequest request, V1.PredictStreamResponse response)
        {
            response.RequestId = request.RequestId;
            _responses.Writer.TryWrite(response);
        }

        /// <summary>Ends the call, in order or not.</summary>
        public void End(QuantraException? failure = null) => _responses.Writer.TryComplete(failure);

        public Task<bool> SendAsync(V1.PredictStreamRequest request)
        {
            lock (Sent)
                Sent.Add(request);
            answer(request, this);
            return Task.FromResult(true);
        }

        public Task EndAsync()
        {
            _ended.TrySetResult();
            if (ends)
                End();
            return Task.CompletedTask;
        }

        public async Task<V1.PredictStreamResponse?> NextAsync() =>
            await _responses.Reader.WaitToReadAsync(cancellationToken) && _responses.Reader.TryRead(out var response) ? response : null;

        public ValueTask DisposeAsync() => ValueTask.CompletedTask;
    }
}
