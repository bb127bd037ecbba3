using System.Runtime.InteropServices;
using Grpc.Core;
using Python.Runtime;
using Quantra.Client.Embedded.Json;

namespace Quantra.Client.Embedded;

/// <summary>One call into Python, from its start to the copy of its answer.</summary>
/// <remarks>
/// It starts on the host's thread, and its answer is copied on the Python thread that computed it, which saves a thread
/// switch; both hold the GIL while they do so.
/// </remarks>
internal sealed class EmbeddedCall(PythonHost host, TimeSpan timeout)
{
    private readonly TaskCompletionSource<JsonResponse> _response = new(TaskCreationOptions.RunContinuationsAsynchronously);
    private PyObject? _pending;

    /// <summary>Starts a method of the door and waits for its response without blocking a thread.</summary>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    /// <exception cref="QuantraException">
    /// DEADLINE_EXCEEDED, QUEUE_FULL, or INTERNAL for an exception that is not one of Quantra's.
    /// </exception>
    public async Task<JsonResponse> RunAsync(PyObject door, string method, JsonRequest request, CancellationToken cancellationToken)
    {
        cancellationToken.ThrowIfCancellationRequested();
        if (host.IsFull)
        {
            const string Message = "too many calls are waiting for Python; try again later";
            throw Refusal(StatusCode.ResourceExhausted, QuantraReason.QueueFull, Message);
        }

        host.Post(() => Begin(door, method, request), Fail);
        try
        {
            return await WaitAsync(_response.Task, timeout, cancellationToken).ConfigureAwait(false);
        }
        catch
        {
            host.Post(Cancel, Fail);
            throw;
        }
    }

    /// <summary>Waits for an answer from Python, up to the timeout.</summary>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    /// <exception cref="QuantraException">DEADLINE_EXCEEDED.</exception>
    public static async Task<T> WaitAsync<T>(Task<T> answer, TimeSpan timeout, CancellationToken cancellationToken)
    {
        try
        {
            return await answer.WaitAsync(timeout, cancellationToken).ConfigureAwait(false);
        }
        catch (TimeoutException error)
        {
            var message = FormattableString.Invariant($"no answer within {timeout.TotalSeconds:g} s; allow more time");
            throw Refusal(StatusCode.DeadlineExceeded, QuantraReason.DeadlineExceeded, message, error);
        }
    }

    private static QuantraException Refusal(StatusCode code, string reason, string message, Exception? cause = null) =>
        QuantraError.Of(code, reason, message).ToException(cause);

    private static double[] Copy(PyObject array)
    {
        using var buffer = array.GetBuffer(PyBUF.CONTIG_RO);
        var copy = new double[buffer.Length / sizeof(double)];
        if (copy.Length > 0)
            Marshal.Copy(buffer.Buffer, copy, 0, copy.Length);
        return copy;
    }

    private void Begin(PyObject door, string method, JsonRequest request)
    {
        using var text = new PyString(request.Json);
        using var buffers = new PyList();
        foreach (var array in request.Buffers)
        {
            using var view = PyObject.FromManagedObject(array);
            buffers.Append(view);
        }

        var pending = _pending = door.InvokeMethod(method, text, buffers);
        using var tell = PyObject.FromManagedObject((Action)(() => PythonHost.Guard(Collect, Fail)));
        pending.InvokeMethod("when_done", tell).Dispose();
    }

    private void Collect()
    {
        using var pending = _pending!;
        _pending = null;
        using var response = pending.InvokeMethod("reply");
        using var text = response[0];
        using var arrays = response[1];
        var buffers = new double[arrays.Length()][];
        for (var index = 0; index < buffers.Length; index++)
        {
            using var array = arrays[index];
            buffers[index] = Copy(array);
        }

        _response.TrySetResult(new JsonResponse(text.As<string>(), buffers));
    }

    private void Cancel() => _pending?.InvokeMethod("cancel").Dispose();

    private void Fail(Exception error) => _response.TrySetException(error);
}
