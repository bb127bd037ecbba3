using Grpc.Core;

namespace Quantra.Client.Tests;

/// <summary>A call invoker that gives every unary call the same response or failure. A test scripts the server streams.</summary>
internal sealed class FixedResponseInvoker(Task<object> answer) : CallInvoker
{
    private readonly Queue<(object[] Messages, Task End)> _streams = new();

    /// <summary>Headers of each unary call.</summary>
    public List<string> Headers { get; } = [];

    public List<object> Requests { get; } = [];

    /// <summary>Adds the stream of the next call: messages, and then success, a failure or nothing more.</summary>
    public FixedResponseInvoker Stream(Task end, params object[] messages)
    {
        _streams.Enqueue((messages, end));
        return this;
    }

    public override AsyncUnaryCall<TResponse> AsyncUnaryCall<TRequest, TResponse>(
        Method<TRequest, TResponse> method,
        string? host,
        CallOptions options,
        TRequest request)
    {
        Requests.Add(request);
        Headers.Add(string.Join(", ", options.Headers!.Select(entry => $"{entry.Key}: {entry.Value}")));
        return new(AnswerAsync(), Task.FromResult(Metadata.Empty), () => Status.DefaultSuccess, () => Metadata.Empty, () => { });

        async Task<TResponse> AnswerAsync() => (TResponse)await answer;
    }

    public override AsyncServerStreamingCall<TResponse> AsyncServerStreamingCall<TRequest, TResponse>(
        Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request)
    {
        var (messages, end) = _streams.Count > 1 ? _streams.Dequeue() : _streams.Peek(); // the last one repeats
        Requests.Add(request);
        var reader = new Reader<TResponse>(messages, end, options.CancellationToken);
        return new(reader, Task.FromResult(Metadata.Empty), () => Status.DefaultSuccess, () => Metadata.Empty, () => { });
    }

    public override TResponse BlockingUnaryCall<TRequest, TResponse>(
        Method<TRequest, TResponse> method, string? host, CallOptions options, TRequest request) => throw new NotSupportedException();

    public override AsyncClientStreamingCall<TRequest, TResponse> AsyncClientStreamingCall<TRequest, TResponse>(
        Method<TRequest, TResponse> method, string? host, CallOptions options) => throw new NotSupportedException();

    public override AsyncDuplexStreamingCall<TRequest, TResponse> AsyncDuplexStreamingCall<TRequest, TResponse>(
        Method<TRequest, TResponse> method, string? host, CallOptions options) => throw new NotSupportedException();

    private sealed class Reader<T>(object[] messages, Task end, CancellationToken cancelled) : IAsyncStreamReader<T>
    {
        private int _read;

        public T Current => (T)messages[_read - 1];

        public async Task<bool> MoveNext(CancellationToken cancellationToken)
        {
            if (_read++ < messages.Length)
                return true;
            try
            {
                await end.WaitAsync(cancelled);
                return false;
            }
            catch (OperationCanceledException)
            {
                throw new RpcException(new Status(StatusCode.Cancelled, "")); // as in gRPC
            }
        }
    }
}
