using System.Globalization;

namespace Quantra.Client.Wire;

/// <summary>The requests of one stream that were asked: which have no answer yet, and which names are in use. Thread-safe.</summary>
internal sealed class AskedRequests(CallSettings settings)
{
    private readonly object _gate = new();
    private readonly HashSet<string> _names = [];
    private readonly Dictionary<string, AskedRequest> _unanswered = [];
    private readonly Queue<AskedRequest> _inOrder = [];
    private long _count;
    private long _answered;
    private bool _isWhole;

    /// <summary>How many there were so far.</summary>
    public long Count
    {
        get
        {
            lock (_gate)
                return _count;
        }
    }

    /// <summary>How many were answered.</summary>
    public long Answered
    {
        get
        {
            lock (_gate)
                return _answered;
        }
    }

    /// <summary>Whether all that will ever be asked is answered.</summary>
    public bool IsDone
    {
        get
        {
            lock (_gate)
                return _isWhole && _unanswered.Count == 0;
        }
    }

    /// <summary>How long nothing may be heard; at most 0 if the predictor has fallen silent.</summary>
    public TimeSpan UntilSilent
    {
        get
        {
            lock (_gate)
            {
                while (_inOrder.TryPeek(out var first) && first.IsAnswered)
                    _inOrder.Dequeue();
                var most = _isWhole ? TimeSpan.Zero : settings.Timeout;
                return (_inOrder.TryPeek(out var oldest) ? oldest.Deadline.Left : most) + settings.Silence;
            }
        }
    }

    /// <summary>One more is asked.</summary>
    /// <returns>The request, and whether its name was free.</returns>
    public (AskedRequest Request, bool IsNew) Enter(PredictionRequest request)
    {
        lock (_gate)
        {
            var place = _count++;
            var name = request.RequestId.Length > 0 ? request.RequestId : place.ToString(CultureInfo.InvariantCulture);
            var asked = new AskedRequest(place, name, request, Deadline.After(settings.Timeout));
            if (!_names.Add(name))
                return (asked, false);
            _unanswered.Add(asked.WireId, asked);
            _inOrder.Enqueue(asked);
            return (asked, true);
        }
    }

    /// <summary>No more will be asked.</summary>
    public void Complete()
    {
        lock (_gate)
            _isWhole = true;
    }

    /// <summary>The request with this name on the wire that has no answer yet; null if there is none.</summary>
    public AskedRequest? Find(string wireId)
    {
        lock (_gate)
            return _unanswered.GetValueOrDefault(wireId);
    }

    /// <summary>Those without an answer, in the order in which they were asked.</summary>
    public AskedRequest[] Unanswered()
    {
        lock (_gate)
            return [.. _inOrder.Where(asked => !asked.IsAnswered)];
    }

    /// <summary>A request is about to be sent over a call of this number.</summary>
    /// <returns>Whether it should be: it has no answer, and was not sent over this call.</returns>
    public bool IsToSend(AskedRequest asked, int call)
    {
        lock (_gate)
        {
            if (asked.IsAnswered || asked.SentOver == call)
                return false;
            asked.SentOver = call;
            return true;
        }
    }

    /// <summary>A request is to be sent once more, though it was sent over this call.</summary>
    public void Again(AskedRequest asked)
    {
        lock (_gate)
            asked.SentOver = 0;
    }

    /// <summary>A request has its result.</summary>
    public void Answer(AskedRequest asked)
    {
        lock (_gate)
        {
            asked.IsAnswered = true;
            _answered++;
            _unanswered.Remove(asked.WireId);
        }
    }

    /// <summary>The caller has the result of this name, which may be used again.</summary>
    public void Leave(string name)
    {
        lock (_gate)
            _names.Remove(name);
    }
}
